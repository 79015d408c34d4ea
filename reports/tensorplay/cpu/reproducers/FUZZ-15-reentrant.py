"""FUZZ-15 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: After a backward through any program that ended because a region raised in its replay, another backward gives
the gradients of the plain run.
Observed: [0]: [-0.0944485, -3.13445, -0.0944485, -0.833903, …] plain, [0, -3.04, 0, 0, …] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    broken = []
    def program(checkpoint, a, b, c):
        v1 = a[0]
        v2 = tensorplay.nn.functional.dropout(v1, 0.5)
        v3 = tensorplay.multiply(v2, v2)
        @decorator_of(checkpoint)
        def region4(v5, v6):
            v7 = tensorplay.clone(v6)
            def region8(v9, v11, v10):
                v12 = tensorplay.clone(v10)
                v13 = tensorplay.sigmoid(b)
                v14 = tensorplay.square(a)
                v15 = tensorplay.unsqueeze(v13, 0)
                v16 = tensorplay.reshape(v15, (3,))
                @decorator_of(checkpoint)
                def region17(v18):
                    v19 = tensorplay.clone(v18)
                    v20 = tensorplay.tanh(c)
                    v21 = tensorplay.negative(v20)
                    v22 = tensorplay.matmul(v21, a)
                    v23 = tensorplay.rand_like(v22)
                    return v22, v19
                v24, v25 = region17(v16)
                return v25, v24
            v26, v27 = checkpoint(region8, v5, v7, v10=v6)
            return v27, v26
        v28, v29 = region4(v1, v6=v1)
        return v28, v29, v3,

    def backward(checkpoint, pull, a, b, c):
        broken.append("the first try")
        try:
            pull(retain=True)
        except KeyError:
            pass
        broken.clear()
        return pull()

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

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
