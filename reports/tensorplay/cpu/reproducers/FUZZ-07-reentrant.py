"""FUZZ-07 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: Where a region changes arrays of its own in place and the plain run is defined, the gradients are right or
there is an error.
Observed: [1]: [-1.96701, 1.51304, 4.0041, 11.3699] plain, [0, 0, 0, 0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        @decorator_of(checkpoint)
        def region1(v3, v2):
            v4 = tensorplay.clone(v2)
            v5 = tensorplay.square(b)
            def region6(v8, v7):
                v9 = tensorplay.clone(v7)
                v10 = tensorplay.sigmoid(v7)
                def region11(n13, v12):
                    v14 = tensorplay.clone(v12)
                    v15 = tensorplay.exp(v14)
                    def region16(n18, v17):
                        v19 = tensorplay.clone(v17)
                        v20 = tensorplay.add(b, v19)
                        v21 = tensorplay.sin(a)
                        v22 = broadcast_to(v20, (2, 4))
                        v23 = tensorplay.relu(v22)
                        v24 = tensorplay.multiply(v22, b)
                        v25 = astype(c, "float64")
                        v26 = tensorplay.reshape(v23, (8,))
                        v28 = v25
                        for i27 in range(2):
                            v28 = tensorplay.sin(v28)
                        return v26
                    v29 = checkpoint(region16, 1, v15)
                    return v29
                v30 = checkpoint(region11, 1, v9)
                return v30
            v31 = checkpoint(region6, b, v7=v5)
            return v31
        v32 = region1(a, v2=a)
        return a, v32,

    primals = (
        tensorplay.tensor([0.6], dtype=tensorplay.float64).reshape(()),
        tensorplay.tensor([-0.65, -0.12, 0.42, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([0, 1, 2, 3], dtype=tensorplay.int64),
    )
    attempt(program, *primals, tolerance=1e-09)

def attempt(program, *primals, tolerance):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(program, plainly, primals)
    try:
        observed = results(program, CHECKPOINTED, primals)
    except Exception as error:
        print("an error will do:", error)
        return
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [is_near(e, o, tolerance) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def is_near(expected, observed, tolerance):
    """Whether they differ by no more than this, relative to the largest element."""
    return np.allclose(observed, expected, tolerance, tolerance * np.abs(expected).max(initial=0), equal_nan=True)

def results(program, checkpoint, primals):
    tensorplay.manual_seed(20180101)
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else tensorplay.utils.checkpoint.checkpoint(
        use_reentrant=True, **options
    )

def vjp(function, *primals):
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in primals]
    every, xs = xs, [x for x in xs if x.requires_grad]
    value = tree_leaves(function(*every))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        tensorplay.autograd.backward(ys, [tensorplay.ones_like(y) for y in ys])
        return [tensorplay.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

def arrays(structure):
    return [
        x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, tensorplay.Tensor)
    ]

def astype(x, dtype):
    return x.to(getattr(tensorplay, dtype))

def broadcast_to(x, shape):
    return x.expand(*shape)

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
