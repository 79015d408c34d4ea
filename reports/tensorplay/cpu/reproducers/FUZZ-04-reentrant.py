"""FUZZ-04 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: Whatever options its regions have, values and gradients of any program are those of the plain run.
Observed: [0]: [-0.78] plain, [0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        def region1(v2):
            v3 = tensorplay.clone(v2)
            v4 = tensorplay.relu(v2)
            v5 = tensorplay.square(a)
            v6 = sum_along(v3, axis=0)
            v7 = v3[0]
            v8 = tensorplay.multiply(v5, v7)
            v9 = tensorplay.detach(v3)
            v10 = astype(c, "float64")
            return v8, v6, v4
        v11, v12, v13 = checkpoint(region1, v2=b, preserve_rng_state=False)
        def region14(v15):
            v16 = tensorplay.clone(v15)
            v17 = broadcast_to(v15, (2, 4))
            v18 = tensorplay.tanh(v17)
            def region19(n21, v20):
                v22 = tensorplay.clone(v20)
                v23 = tensorplay.sin(v22)
                return v23, v22
            v24, v25 = checkpoint(region19, 1, b, preserve_rng_state=True)
            @decorator_of(checkpoint, early_stop=False, preserve_rng_state=False)
            def region26(v27, v28):
                v29 = tensorplay.clone(v28)
                v30 = tensorplay.sin(a)
                return v30, v28
            v31, v32 = region26(v25, v25)
            return v32, v18
        v33, v34 = checkpoint(region14, v15=v13, early_stop=True, preserve_rng_state=False)
        return v11, v34, v12, v33,

    primals = (
        tensorplay.tensor([0.6], dtype=tensorplay.float64).reshape(()),
        tensorplay.tensor([-0.65, -0.12, 0.42, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([0, 1, 2, 3], dtype=tensorplay.int64),
    )
    run(program, *primals, tolerance=1e-09)

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

def broadcast_to(x, shape):
    return x.expand(*shape)

def sum_along(x, axis=None):
    return tensorplay.sum(x) if axis is None else tensorplay.sum(x, dim=axis)

plainly = lambda function, *args, early_stop=None, preserve_rng_state=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
