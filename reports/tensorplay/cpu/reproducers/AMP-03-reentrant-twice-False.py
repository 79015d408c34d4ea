"""AMP-03 on tensorplay 1.0.0+gite11450d, reentrant, twice-False: a wrong gradient.

Specified: Gradients are right whether or not autocast has a weight's cast in its cache when the region or its replay
runs.
Observed: [0]: [1.03906, 2.875, 4.71875, 0.40625, …] plain, [1.04372, 2.8914, 4.73909, 0.392638, …] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, w):
        def region(x, w):
            y = tensorplay.matmul(tensorplay.clone(x), w)
            return tensorplay.exp(tensorplay.sin(tensorplay.add(y, tensorplay.matmul(x, w))))

        with tensorplay.autocast(x.device.type, dtype=tensorplay.bfloat16, cache_enabled=False):
            # Cut off: gradients that met in a cached cast would be added in another dtype than those of two casts.
            z = 0.0
            return tensorplay.add(checkpoint(region, x, w), z)

    run(
        program, tensorplay.linspace(0.1, 0.9, 12, dtype=tensorplay.float32).reshape(4, 3), tensorplay.linspace(
            0.1, 0.9, 6, dtype=tensorplay.float32
        ).reshape(3, 2)
    )

def run(program, *primals):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
