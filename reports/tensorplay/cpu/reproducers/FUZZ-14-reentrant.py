"""FUZZ-14 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: Values and gradients of any program whose parts run under autocast are those of the plain run.
Observed: [1]: [0.432422, 0.432422, 1.03242, 2.33459, …] plain, [0.432422, 0.432422, 1.03242, 2.22656, …] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        v1 = tensorplay.matmul(c, b)
        v2 = tensorplay.relu(v1)
        def region3(n5, v4):
            v6 = tensorplay.clone(v4)
            v7 = tensorplay.permute(v6, (1, 0))
            def region8(n12, v9, v10, v11):
                v13 = tensorplay.clone(v11)
                with autocast(a):
                    v14 = astype(tensorplay.matmul(b, v13), "float32")
                    v15 = v14[0]
                    v16 = tensorplay.cos(v13)
                    v17 = astype(tensorplay.matmul(c, v10), "float32")
                v18 = tensorplay.matmul(v10, v14)
                return v18, v17
            v19, v20 = checkpoint(region8, 2, v7, c, v11=v6)
            return v20, v19, v4
        v21, v22, v23 = checkpoint(region3, 1, v1)
        return a, v23, v2, v21, v22,

    primals = (
        tensorplay.tensor([-0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9], dtype=tensorplay.float32).reshape(3, 3),
        tensorplay.tensor([-0.65, -0.45, -0.25, -0.05, 0.15, 0.35, 0.55, 0.75, 0.95], dtype=tensorplay.float32).reshape(
            3, 3
        ),
        tensorplay.tensor([-0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0], dtype=tensorplay.float32).reshape(3, 3),
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

def autocast(x):
    return tensorplay.autocast(x.device.type, tensorplay.bfloat16, cache_enabled=False)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
