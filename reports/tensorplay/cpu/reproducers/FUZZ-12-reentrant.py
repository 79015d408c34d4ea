"""FUZZ-12 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: Where several backward calls through any program share their replays, the gradients are right or there is an
error; each region is replayed at most as often as it is deep for all of them.
Observed: [0][0]: [0, 1, 1] plain, [0, 0, 0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import contextlib
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        v1 = tensorplay.tanh(b)
        v2 = tensorplay.exp(v1)
        v3 = tensorplay.exp(v1)
        def region4(v5):
            v6 = tensorplay.clone(v5)
            v7 = astype(a, "float32")
            v8 = tensorplay.concat([v7, v7])
            v9 = tensorplay.sigmoid(v8)
            v10 = v7[1:]
            v11 = tensorplay.rand_like(v9)
            @decorator_of(checkpoint)
            def region12(v13, v14):
                v15 = tensorplay.clone(v13)
                def region16(v17):
                    v18 = tensorplay.clone(v17)
                    v19 = tensorplay.sin(v17)
                    v20 = tensorplay.sin(v19)
                    v21 = tensorplay.relu(v20)
                    return v21, v18
                v22, v23 = checkpoint(region16, v17=v15)
                return v23, v22
            v24, v25 = region12(v10, v14=v11)
            return v25, v24
        v26, v27 = checkpoint(region4, v5=a)
        return v27, v26, v2, v3,

    def backward(checkpoint, pull, a, b, c):
        with group_of(checkpoint):
            return pull(outputs=[0], retain=True), pull(outputs=[1])

    primals = (
        tensorplay.tensor([-0.7, 0.1, 0.9], dtype=tensorplay.float64),
        tensorplay.tensor([-0.65, 0.15, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([0.7], dtype=tensorplay.float64).reshape(()),
    )
    seen = attempt(program, *primals, tolerance=0.0001, backward=lambda pull: backward(now.checkpoint, pull, *primals))

def attempt(program, *primals, backward, tolerance):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(program, plainly, primals, backward=backward)
    try:
        observed = results(program, CHECKPOINTED, primals, backward=backward)
    except Exception as error:
        print("an error will do:", error)
        return
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [is_near(e, o, tolerance) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def is_near(expected, observed, tolerance):
    """Whether they differ by no more than this, relative to the largest element."""
    return np.allclose(observed, expected, tolerance, tolerance * np.abs(expected).max(initial=0), equal_nan=True)

def results(program, checkpoint, primals, *, backward):
    tensorplay.manual_seed(20180101)
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
    return value, arrays(backward(pull))

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else tensorplay.utils.checkpoint.checkpoint(
        use_reentrant=True, **options
    )

def group_of(checkpoint):
    return contextlib.nullcontext() if checkpoint is plainly else tensorplay.utils.checkpoint.GraphExecGroup()

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for i, y in enumerate(value) if outputs is None or i in outputs]
        ys = [y for y in ys if getattr(y, "requires_grad", False)]
        tensorplay.autograd.backward(ys, [tensorplay.ones_like(y) for y in ys], retain_graph=retain)
        found = [tensorplay.zeros_like(x) if x.grad is None else x.grad for x in xs]
        for x in xs:
            x.grad = None
        return found
    return value, pull

def arrays(structure):
    return [
        x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, tensorplay.Tensor)
    ]

def astype(x, dtype):
    return x.to(getattr(tensorplay, dtype))

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
