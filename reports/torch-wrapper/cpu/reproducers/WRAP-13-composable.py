"""WRAP-13 on torch-wrapper 2.13.0+cpu, composable: the wrapped module is still of its class.

Specified: What a wrapper returns is a module, of a class of its own.
Observed: assert not True
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    kept = []

    class Model(torch.nn.Module):
        def forward(self, x):
            return torch.sin(torch.exp(torch.clone(x)))

    def program(checkpoint, x):
        kept.append(wrapped_by(checkpoint, Model()))
        return kept[-1](x)

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert isinstance(kept[-1], torch.nn.Module), "what the wrapper returned is no module"
    assert not isinstance(kept[-1], Model), "the wrapped module is still of its class"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    return composable(region)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def wrapped_by(checkpoint, module, **options):
    return module if checkpoint is plainly else composable(module, **options)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: not isinstance(kept[-1], Model)\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the wrapped module is still of its class"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("the wrapped module is still of its class") else 2)
print("as specified")
