"""MEM-07 on jax 0.10.2, checkpoint, text: what the region captured is alive after the outputs are gone.

Specified: The function and what it captured are released when the program's outputs are, without a garbage collection.
Observed: assert not True
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import gc
import sys
import weakref
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)

def main():
    alive = []

    class Captured:
        pass

    def program(checkpoint, x):
        captured = Captured()
        alive.append(watch(captured))

        def region(x, *others):
            assert captured is not None
            return jnp.exp(jnp.sin(jnp.copy(x)))

        return checkpoint(region, x, "text")

    run(program, jnp.linspace(0.1, 0.9, 4, dtype=jnp.float64))

    assert not any(is_alive() for is_alive in alive), "what the region captured is alive after the outputs are gone"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def watch(thing):
    """A function that says whether the object is alive; reference counting alone must release it."""
    gc.disable()
    reference = weakref.ref(thing)
    return lambda: reference() is not None

def checkpoint(function, *args, **kwargs):
    static = tuple(i for i, a in enumerate(args) if not any(isinstance(x, jax.Array) for x in jax.tree.leaves(a)))
    return jax.checkpoint(function, static_argnums=static)(*args, **kwargs)

def vjp(function, *primals):
    value, pullback = jax.vjp(lambda *xs: jax.tree.leaves(function(*xs)), *primals)
    def pull(outputs=None, retain=False):
        ones = [jnp.ones_like(y) for y in value]
        is_exact = [not jnp.issubdtype(y.dtype, jnp.inexact) for y in value]
        ones = [np.zeros(y.shape, jax.dtypes.float0) if e else one for y, e, one in zip(value, is_exact, ones)]
        return pullback(ones)
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: not any((is_alive() for is_alive in alive))\nobserved:", error)
    sys.exit(1 if str(error).startswith("what the region captured is alive after the outputs are gone") else 2)
print("as specified")
