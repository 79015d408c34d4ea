"""MUT-03 on torch 2.13.0+cpu, non-reentrant, in a list: a wrong gradient.

Specified: An in-place change between forward and backward is noticed also in keyword arguments and in containers: the
gradient is that of the forward or there is an error.
Observed: [0]: [0.383649, -0.215748, -0.0663202, 0.33874] plain, [0.0415327, -0.273828, 0.452878, -0.445972]
checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def unchanged(checkpoint, x):
        other = torch.tensor([2.0, 3.0, 4.0, 5.0], dtype=torch.float64)

        def region(x, others=None, *, other=None):
            other = others[0]
            return torch.cos(torch.sin(torch.add(torch.clone(x), other)))

        return checkpoint(region, x, [other]), other

    def program(checkpoint, x):
        y, other = unchanged(checkpoint, x)
        torch.Tensor.add_(other, 1.0)
        return y

    def without_change(checkpoint, x):
        return unchanged(checkpoint, x)[0]

    attempt(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64), plain=without_change)

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
