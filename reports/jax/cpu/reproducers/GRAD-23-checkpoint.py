"""GRAD-23 on jax 0.10.2, checkpoint: a wrong value.

Specified: A function that is checkpointed a second time sees what it captured as it is then, not as it was at first.
Observed: : [1.34383, 2.43807, 2.57616, 1.53323] plain, [1.21978, 1.95297, 2.59635, 2.64811] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)

def main():
    def program(checkpoint, x):
        scale = [2.0]

        def region(x):
            return jnp.exp(jnp.sin(jnp.multiply(jnp.copy(x), scale[0])))

        checkpoint(region, x)  # without influence, so that no replay of it sees the other scale
        scale[0] = 3.0
        return checkpoint(region, x)

    run(program, jnp.linspace(0.1, 0.9, 4, dtype=jnp.float64))

def run(program, *primals):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals):
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    return value, arrays(pull())

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

def arrays(structure):
    return [np.array(x, np.float64) for x in jax.tree.leaves(structure)]

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("value:") else 2)
print("as specified")
