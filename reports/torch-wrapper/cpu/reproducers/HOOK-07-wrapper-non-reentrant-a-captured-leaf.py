"""HOOK-07 on torch-wrapper 2.13.0+cpu, wrapper non-reentrant, a captured leaf: a wrong gradient.

Specified: A gradient hook that a region puts on an argument, or on an array that it captures, acts once a backward.
Observed: [0]: [3.92027, 2.97179, 1.19785, -0.908808] plain, [15.6811, 11.8872, 4.79141, -3.63523] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x):
        h = x

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
    region = torch.nn.Module()
    region.forward = function.__call__
    return checkpoint_wrapper(region)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

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
