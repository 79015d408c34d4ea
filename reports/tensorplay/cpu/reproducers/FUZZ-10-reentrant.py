"""FUZZ-10 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: After backward through any program no more bytes are held than after that of the plain run.
Observed: [1]: [1, 1, 1] plain, [0, 0, 0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        v1 = tensorplay.multiply(a, tensorplay.rand_like(a))
        v2 = tensorplay.tanh(c)
        v3 = v1[1:]
        v4 = sum_along(v3, axis=0)
        v5 = tensorplay.multiply(v4, v4)
        v6 = tensorplay.nn.functional.dropout(v3, 0.5)
        v7 = tensorplay.sin(v2)
        v8 = tensorplay.nn.functional.dropout(a, 0.5)
        @decorator_of(checkpoint)
        def region9(v10):
            v11 = tensorplay.clone(v10)
            def region12(v13):
                v14 = tensorplay.clone(v13)
                v15 = tensorplay.unsqueeze(v14, 0)
                v16 = tensorplay.add(c, b)
                with tensorplay.no_grad():
                    v17 = mean_along(v16, axis=-1)
                    v18 = tensorplay.negative(c)
                    v19 = tensorplay.multiply(v13, v17)
                return v16, v15
            v20, v21 = checkpoint(region12, v10)
            return v21, v20
        v22, v23 = region9(v10=v7)
        return v8, v23, v5, v6, v22,

    primals = (
        tensorplay.tensor([-0.7, 0.1, 0.9], dtype=tensorplay.float64),
        tensorplay.tensor([-0.65, 0.15, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([0.7], dtype=tensorplay.float64).reshape(()),
    )
    seen = run(program, *primals, tolerance=1e-09)

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

def sum_along(x, axis=None):
    return tensorplay.sum(x) if axis is None else tensorplay.sum(x, dim=axis)

def mean_along(x, axis=None):
    return tensorplay.mean(x) if axis is None else tensorplay.mean(x, dim=axis)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
