"""HOOK-07 on torch 2.13.0+cpu, reentrant, a captured value: a wrong gradient.

Specified: A gradient hook that a region puts on an argument, or on an array that it captures, acts once a backward.
Observed: [0]: [1.88569, 0.331561, -2.43384, -5.24147] plain, [7.81036, 2.39298, -8.04617, -19.4846] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x):
        h = torch.exp(x)

        def region(y, read=h):
            read.register_hook(lambda gradient: torch.multiply(gradient, 4.0))
            return torch.multiply(torch.sin(torch.clone(read)), y)

        return checkpoint(region, torch.cos(x), *([]))

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

def run(program, *primals):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals):
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
