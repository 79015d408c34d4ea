"""IO-12 on jax 0.10.2, checkpoint, text: TypeError in forward.

Specified: Keyword arguments that are no arrays, None included, reach the region unchanged in forward and in the replay.
Observed: Argument 'exp' of type <class 'str'> is not a valid JAX type
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)

def main():
    given = "exp"

    def program(checkpoint, x):
        def region(x, *, setting):
            y = jnp.sin(jnp.copy(x))
            return jnp.exp(jnp.multiply(y, 2.0)) if setting is given or setting == given else jnp.cos(y)

        return checkpoint(region, x, setting=given)

    run(program, jnp.linspace(0.1, 0.9, 4, dtype=jnp.float64))

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

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
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("TypeError in forward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
