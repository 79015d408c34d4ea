"""DECO-12 on jax 0.10.2, checkpoint: the object's attributes are still there.

Specified: A callable object can be decorated; the result is called like it, but does not have its attributes.
Observed: assert not True
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)

def main():
    kept = []

    class Layer:
        """A layer."""

        def __init__(self, weight):
            self.weight = weight

        def __call__(self, x):
            return jnp.exp(jnp.multiply(jnp.sin(jnp.copy(x)), self.weight))

    def program(checkpoint, x):
        layer = decorator_of(checkpoint)(Layer(2.0))
        kept.append(hasattr(layer, "weight"))
        return layer(x)

    run(program, jnp.linspace(0.1, 0.9, 4, dtype=jnp.float64))

    assert not kept[-1], "the object's attributes are still there"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def checkpoint(function, *args, **kwargs):
    static = tuple(i for i, a in enumerate(args) if not any(isinstance(x, jax.Array) for x in jax.tree.leaves(a)))
    return jax.checkpoint(function, static_argnums=static)(*args, **kwargs)

def decorator_of(checkpoint, policy=None):
    return (lambda function: function) if checkpoint is plainly else functools.partial(jax.checkpoint, policy=policy)

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
    print("expected: not kept[-1]\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the object's attributes are still there"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("the object's attributes are still there") else 2)
print("as specified")
