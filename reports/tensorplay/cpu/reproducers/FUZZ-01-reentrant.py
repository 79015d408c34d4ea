"""FUZZ-01 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: Values and gradients of any program of pure operations are those of the plain run.
Observed: [0]: [0.496585, 0.843665, 1.44773, 2.4596] plain, [0, 0, 0, 0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        v1 = tensorplay.sigmoid(c)
        def region2(n4, v3):
            v5 = tensorplay.clone(v3)
            v6 = v5[1:]
            v7 = tensorplay.relu(v3)
            v8 = tensorplay.sigmoid(v7)
            v9 = tensorplay.square(c)
            v10 = tensorplay.relu(v8)
            v11 = tensorplay.exp(v9)
            v12 = astype(v11, "float32")
            return v12, v6
        v13, v14 = checkpoint(region2, 1, v3=v1)
        @decorator_of(checkpoint)
        def region15(v16):
            v17 = tensorplay.clone(v16)
            v18 = tensorplay.relu(v17)
            v19 = tensorplay.exp(a)
            v20 = astype(v19, "float64")
            return v20
        v21 = region15(b)
        return v21, v14,

    primals = (
        tensorplay.tensor([-0.7, -0.17, 0.37, 0.9], dtype=tensorplay.float32).reshape(2, 2),
        tensorplay.tensor([-0.65, 0.95], dtype=tensorplay.float32).reshape(2, 1),
        tensorplay.tensor([-0.6, 1.0], dtype=tensorplay.float64),
    )
    run(program, *primals, tolerance=0.0001)

def run(program, *primals, tolerance):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [is_near(e, o, tolerance) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def is_near(expected, observed, tolerance):
    """Whether they differ by no more than this, relative to the largest element."""
    return np.allclose(observed, expected, tolerance, tolerance * np.abs(expected).max(initial=0), equal_nan=True)

def results(program, checkpoint, primals):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else tensorplay.utils.checkpoint.checkpoint(
        use_reentrant=True, **options
    )

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
