"""MUT-02 on tensorplay 1.0.0+gite11450d, reentrant, constant: a wrong gradient.

Specified: Where a region changes an argument in place, the gradient is right or there is an error.
Observed: [0]: [0.345761, 0.680549, 0.858374, 2.24543] plain, [0.126937, 0.0295302, -0.162772, 0.7602] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, *, change=tensorplay.Tensor.add_):
        h, constant = tensorplay.cos(x), tensorplay.tensor([2.0, 3.0, 4.0, 5.0], dtype=tensorplay.float64)

        def region(h, constant):
            constant = change(constant, 1.0)
            return tensorplay.exp(tensorplay.sin(tensorplay.multiply(tensorplay.clone(h), constant)))

        return checkpoint(region, h, constant)

    attempt(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

def attempt(program, *primals):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(program, plainly, primals)
    try:
        observed = results(program, CHECKPOINTED, primals)
    except Exception as error:
        print("an error will do:", error)
        return
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

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
