"""SEL-11 on torch-wrapper 2.13.0+cpu, wrapper non-reentrant, select: a wrong gradient.

Specified: Where a policy saves a view through which the region then changes a value, the gradient is right or there is
an error.
Observed: [0]: [0.493821, -2.66034, -0.341336, -0.788247] plain, [0.493821, 0.185917, -0.341336, -0.788247] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    def region(x):
        y = torch.sin(torch.clone(x))
        part = y.select(0, 1)
        torch.Tensor.add_(part, 1.0)
        return torch.sin(torch.exp(y))

    def program(checkpoint, x):
        policy = lambda context, operation, *args, **kwargs: "select" in str(operation)
        contexts = lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts(policy)
        return checkpoint(region, x, context_fn=contexts)

    attempt(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

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
    torch.manual_seed(20180101)
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    options = {name: kwargs.pop(name) for name in {"context_fn"} & set(kwargs)}
    return checkpoint_wrapper(region, **options)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

now = types.SimpleNamespace()
plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
