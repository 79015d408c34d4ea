"""FUZZ-05 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: A second backward through any program gives the gradients of the first.
Observed: [0][0]: [0.88, -0.4, -1.68, 0.88, …] plain, [0, 0, 0, 0, …] checkpointed
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
        v1 = tensorplay.exp(c)
        v2 = astype(v1, "int64")
        v3 = tensorplay.negative(c)
        v4 = tensorplay.sigmoid(v3)
        v5 = c[1:]
        v6 = tensorplay.sigmoid(b)
        v7 = tensorplay.sigmoid(v6)
        @decorator_of(checkpoint)
        def region8(v9, v10, v11):
            v12 = tensorplay.clone(v11)
            def region13(n15, v14):
                v16 = tensorplay.clone(v14)
                @decorator_of(checkpoint)
                def region17(v18):
                    v19 = tensorplay.clone(v18)
                    v20 = tensorplay.negative(v19)
                    v21 = tensorplay.matmul(v20, c)
                    return v21
                v22 = region17(v18=a)
                return v22
            v23 = checkpoint(region13, 2, v12)
            return v23
        v24 = region8(v1, c, v3)
        return v24, v7,

    def backward(checkpoint, pull, a, b, c):
        return pull(retain=True), pull()

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

def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else tensorplay.utils.checkpoint.checkpoint(
        use_reentrant=True, **options
    )

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
