"""FUZZ-03 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: In any program, forward executes each region once, and backward at most as often as it is deep.
Observed: [0]: [2.6] plain, [2] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        @decorator_of(checkpoint)
        def region1(v2):
            v3 = tensorplay.clone(v2)
            v4 = tensorplay.multiply(b, a)
            v5 = astype(c, "float64")
            return v4, v3, v2
        v6, v7, v8 = region1(a)
        v9 = astype(v7, "int64")
        v10 = tensorplay.reshape(v8, (1,))
        v11 = tensorplay.add(v10, v8)
        v12 = v11[0]
        v13 = astype(v9, "float32")
        def region14(n16, v15):
            v17 = tensorplay.clone(v15)
            v18 = tensorplay.detach(a)
            v19 = tensorplay.square(v17)
            v20 = v19[1:]
            return v20
        v21 = checkpoint(region14, 1, b)
        return v12, v21, v6, v13,

    primals = (
        tensorplay.tensor([0.6], dtype=tensorplay.float64).reshape(()),
        tensorplay.tensor([-0.65, -0.12, 0.42, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([0, 1, 2, 3], dtype=tensorplay.int64),
    )
    seen = run(program, *primals, tolerance=0.0001)

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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
