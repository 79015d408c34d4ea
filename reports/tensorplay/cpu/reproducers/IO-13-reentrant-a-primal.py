"""IO-13 on tensorplay 1.0.0+gite11450d, reentrant, a primal: a wrong gradient.

Specified: A region may return an array that it captured, beside other results; the array is afterwards what it was
before.
Observed: [1]: [1.10499, -2.86238, 7.22921, 1.09437] plain, [0.552493, -1.43119, 3.6146, 0.547185] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    probe = Probe()

    def program(checkpoint, x, w):
        outside = w

        def region(x):
            assert probe.executions < 20, "the region is replayed without end"
            return outside, tensorplay.exp(tensorplay.sin(probe(x)))

        same, y = checkpoint(region, x)
        return tensorplay.multiply(tensorplay.multiply(same, y), outside)

    run(
        program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64),
        tensorplay.tensor([0.5, -1.0, 2.0, 0.25], dtype=tensorplay.float64)
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
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
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

class Probe:
    """A function that returns what it is given, and counts how often it is executed."""
    def __init__(self, name=""):
        self.name = name
        self.executions = 0
    def __call__(self, x):
        self.executions += 1
        getattr(now, now.phase)[self] += 1
        return x.clone()

now = types.SimpleNamespace(forward=Counter(), backward=Counter())
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
