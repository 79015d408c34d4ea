"""COMPILE-12 on torch-wrapper 2.13.0+cpu, composable: a wrong gradient.

Specified: A compiled program whose regions contain regions has the values and gradients of the program.
Observed: [0]: [1280, -655360, 2.51942e+07, 2.5] plain, [36868, -4.83184e+09, 4.76062e+12, 2.28125] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    probe = ProbeOperator()

    def program(checkpoint, x):
        def inner(x):
            return torch.multiply(torch.multiply(probe(x), x), x)

        def outer(x):
            return torch.multiply(checkpoint(inner, torch.multiply(checkpoint(inner, x), 0.5)), x)

        return compiled_function(lambda x: checkpoint(outer, torch.multiply(x, 2.0)))(x)

    run(program, torch.tensor([1.0, -2.0, 3.0, 0.5], dtype=torch.float64))

def run(program, *primals):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
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
    return composable(region)(*args, **kwargs)

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
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
