"""COMPILE-05 on torch-wrapper 2.13.0+cpu, composable: a wrong gradient.

Specified: The contexts of a region in a compiled program take effect in forward and in the replay, or the call is
refused.
Observed: [0]: [4, -8, 12, 2] plain, [6, -12, 18, 3] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    probe, factor = ProbeOperator(), [1.0]

    class Scaled:
        def __enter__(self):
            factor[0] = 2.0

        def __exit__(self, *exception):
            factor[0] = 1.0

    def region(x):
        return torch.multiply(torch.multiply(probe(x), factor[0]), x)

    def program(checkpoint, x):
        checkpoint = functools.partial(checkpoint, context_fn=lambda: (Scaled(), Scaled()))
        return compiled_function(lambda x: checkpoint(region, x))(x)

    def plain(checkpoint, x):
        with Scaled():
            return region(x)

    x = torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64)
    attempt(program, x, plain=plain)

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
    region = Region(function)
    options = {name: kwargs.pop(name) for name in {"context_fn"} & set(kwargs)}
    return composable(region, **options)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

class ProbeOperator:
    """An operator that returns what it is given, and counts how often it is executed."""
    every = []
    def __init__(self, name=""):
        self.every.append(self)
    def __call__(self, x):
        return probe_operator(x, self.every.index(self))

@torch.library.custom_op("reproducer::probe", mutates_args=())
def probe_operator(x: torch.Tensor, number: int) -> torch.Tensor:
    getattr(now, now.phase)[ProbeOperator.every[number]] += 1
    return x.clone()
probe_operator.register_autograd(lambda ctx, gradient: (gradient, None))
probe_operator.register_fake(lambda x, number: torch.empty_like(x))

def compiled_function(function):
    return torch.compile(function, backend="aot_eager") if now.checkpoint is CHECKPOINTED else function

class Region(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)

now = types.SimpleNamespace(forward=Counter(), backward=Counter())
plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("value"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
