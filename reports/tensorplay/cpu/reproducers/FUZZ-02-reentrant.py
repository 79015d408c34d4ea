"""FUZZ-02 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: Values and gradients of any program with random operations are those of the plain run, and so is the
generator afterwards, with draws between forward and backward.
Observed: [1][2]: [-2.03659, -2.04919, -2.06174, -2.07207, …] plain, [-2, -2, -2, -2, …] checkpointed
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
        v1 = tensorplay.sin(a)
        v2 = tensorplay.negative(v1)
        v3 = tensorplay.negative(c)
        v4 = tensorplay.rand_like(a)
        v5 = tensorplay.square(v4)
        v6 = tensorplay.cos(v2)
        def region7(n9, v8):
            v10 = tensorplay.clone(v8)
            def region11(v12):
                v13 = tensorplay.clone(v12)
                v14 = tensorplay.permute(v13, (1, 0))
                v15 = tensorplay.sigmoid(c)
                v16 = mean_along(v15, axis=-1)
                v17 = tensorplay.cos(v15)
                v18 = tensorplay.matmul(v17, v14)
                v19 = tensorplay.tanh(v17)
                v20 = tensorplay.sin(v14)
                return v20, v12, v19
            v21, v22, v23 = checkpoint(region11, v10)
            return v23, v8, v22
        v24, v25, v26 = checkpoint(region7, 2, v3)
        return v6, v26, v5, v24, v25,

    def backward(checkpoint, pull, a, b, c):
        return tensorplay.rand_like(a), pull(), tensorplay.rand_like(a)

    primals = (
        tensorplay.tensor([-0.7, -0.38, -0.06, 0.26, 0.58, 0.9], dtype=tensorplay.float64).reshape(2, 3),
        tensorplay.tensor([-0.65, 0.15, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([-0.6, -0.28, 0.04, 0.36, 0.68, 1.0], dtype=tensorplay.float64).reshape(3, 2),
    )
    run(program, *primals, tolerance=1e-09, backward=lambda pull: backward(now.checkpoint, pull, *primals))

def run(program, *primals, backward, tolerance):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
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

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
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

def mean_along(x, axis=None):
    return tensorplay.mean(x) if axis is None else tensorplay.mean(x, dim=axis)

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
