"""AMP-02 on tensorplay 1.0.0+gite11450d, reentrant, disabled: a wrong gradient.

Specified: An autocast that is active around backward does not reach the replay.
Observed: [0]: [0.46875, 1.28906, 2.10938, 0.519531, …] plain, [0.46875, 1.28906, 2.10938, 0.519531, …] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    dtypes = []
    kind = tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64).device.type

    def program(checkpoint, x, w):
        dtypes.clear()

        def region(x, w):
            y = tensorplay.matmul(tensorplay.clone(x), w)
            dtypes.append(y.dtype)
            return tensorplay.exp(tensorplay.sin(y))

        with tensorplay.autocast(kind, dtype=tensorplay.float16, enabled=False):
            return checkpoint(region, x, w)

    def backward(pull):
        with tensorplay.autocast(kind, dtype=tensorplay.bfloat16):
            return pull()

    run(
        program,
        tensorplay.linspace(0.1, 0.9, 12, dtype=tensorplay.float32).reshape(4, 3),
        tensorplay.linspace(0.1, 0.9, 6, dtype=tensorplay.float32).reshape(3, 2),
        backward=backward,
    )

def run(program, *primals, backward):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals, *, backward):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
