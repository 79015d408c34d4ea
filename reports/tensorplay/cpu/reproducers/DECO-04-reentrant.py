"""DECO-04 on tensorplay 1.0.0+gite11450d, reentrant: a wrong gradient.

Specified: A decorated method is bound to its object, and its object's parameters get their gradients.
Observed: [1]: [0.104943, 0.250495, 1.93313, 0.952778] plain, [0, 0, 0, 0] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, w):
        class Layer:
            def __init__(self, w):
                self.w = w

            @decorator_of(checkpoint)
            def apply(self, x):
                return tensorplay.exp(tensorplay.multiply(tensorplay.sin(tensorplay.clone(x)), self.w))

        return Layer(w).apply(x)

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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
