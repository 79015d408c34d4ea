"""VIEW-02 on tensorplay 1.0.0+gite11450d, reentrant, saves a value: a wrong gradient.

Specified: Where a region returns a view of its argument and the program changes it in place, the gradient is right or
there is an error.
Observed: [0]: [0.938448, 1.9235, 2.22394, 1.41336] plain, [-0.507398, -0.710039, -0.812671, -0.674233] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, *, add=tensorplay.Tensor.add_):
        def function(h):
            view, other = tensorplay.reshape(h, (2, 2)), tensorplay.clone(h)
            return view, tensorplay.exp(tensorplay.sin(tensorplay.cos(other)))

        view, other = checkpoint(function, tensorplay.add(x, 1.0))
        y = tensorplay.multiply(add(view, 1.0), tensorplay.reshape(other, (2, 2)))
        return checkpoint(lambda y: tensorplay.exp(tensorplay.sin(tensorplay.clone(y))), y)

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
