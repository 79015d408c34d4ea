"""FUZZ-10 on jax 0.10.2, checkpoint: more is held after backward than by the plain run.

Specified: After backward through any program no more bytes are held than after that of the plain run.
Observed: assert 288 <= 240
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import gc
import sys
import types
import weakref
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import jax
import jax.numpy as jnp
import numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)

def main():
    def program(checkpoint, a, b, c):
        v1 = jnp.tanh(a)
        v3 = a
        for i2 in range(2):
            v4 = jnp.sum(a)
            v3 = jnp.sin(v3)
        v5 = jnp.cos(v3)
        v6 = jnp.cos(v5)
        v7 = jnp.cos(v6)
        v8 = jnp.tanh(v7)
        v9 = jnp.add(v7, b)
        def region10(n11):
            v12 = jnp.copy(v9)
            v14 = v12
            for i13 in range(2):
                v14 = jnp.sin(v14)
            v15 = jax.nn.relu(v9)
            v16 = jnp.sin(v15)
            return v16, v15, v12
        v17, v18, v19 = checkpoint(region10, 1)
        return v19, v18, v1, v8, v17,

    primals = (
        jnp.array([-0.7, -0.38, -0.06, 0.26, 0.58, 0.9], dtype=jnp.float64).reshape(2, 3),
        jnp.array([-0.65, 0.15, 0.95], dtype=jnp.float64),
        jnp.array([-0.6, -0.28, 0.04, 0.36, 0.68, 1.0], dtype=jnp.float64).reshape(3, 2),
    )
    seen = run(program, *primals)
    held, plain = seen.held.after_backward, seen.plain.held.after_backward
    assert held <= plain, f"more is held after backward than by the plain run: {held}"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    first = now
    observe(program, CHECKPOINTED, primals)
    now.plain = first
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    now.ledger, now.held = Ledger(), types.SimpleNamespace()
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    gradients = pull()
    del pull, gradients
    now.held.after_backward = now.ledger.held()
    now.ledger.end()

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

class Ledger:
    """The arrays that have been made since."""
    def __init__(self):
        self.before = [weakref.ref(x) for x in jax.live_arrays()]
    def held(self):
        gc.collect()
        old = {id(x) for reference in self.before if (x := reference()) is not None}
        return sum({x.unsafe_buffer_pointer(): x.nbytes for x in jax.live_arrays() if id(x) not in old}.values())
    def end(self):
        pass

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: held <= plain\nobserved:", error)
    sys.exit(1 if str(error).startswith("more is held after backward than by the plain run") else 2)
print("as specified")
