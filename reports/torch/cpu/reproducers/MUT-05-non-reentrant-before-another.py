"""MUT-05 on torch 2.13.0+cpu, non-reentrant, before another: a wrong gradient.

Specified: Where a region changes in place a value that its backward needs, which a plain backward refuses, the gradient
is that of the same computation without in-place changes or there is an error.
Observed: [0]: [-0.562867, -1.10483, -1.82167, -2.33628] plain, [-1.07217, -1.87053, -2.78864, -3.28614] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, *, add=torch.Tensor.add_):
        def region(x):
            y = torch.exp(torch.clone(x))
            y = add(y, 1.0)  # exp has saved its result
            return torch.sin(y)

        return checkpoint(region, x)

    def out_of_place(checkpoint, x):
        return program(checkpoint, x, add=torch.add)

    attempt(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64), plain=out_of_place)

def attempt(program, *primals, plain):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(plain, plainly, primals)
    try:
        observed = results(program, CHECKPOINTED, primals)
    except Exception as error:
        print("an error will do:", error)
        return
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals):
    torch.manual_seed(20180101)
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
