"""FUNC-06 on torch-wrapper 2.13.0+cpu, wrapper non-reentrant: the region was not refused when it was called.

Specified: A region inside a function that is mapped over a batch gives right gradients, or is refused when it is
called.
Observed: assert (AssertionError('interpreter must not be None') is None or 'backward' == 'forward'
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    def region(x):
        return torch.exp(torch.sin(torch.clone(x)))

    def program(checkpoint, x):
        return torch.func.vmap(lambda row: checkpoint(region, row))(x)

    seen = attempt(program, torch.linspace(0.1, 0.9, 12, dtype=torch.float64).reshape(3, 4))

    assert seen.error is None or seen.phase == "forward", "the region was not refused when it was called"

def attempt(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run, also its exception."""
    for _ in range(2):
        observe(program, plainly, primals)
    try:
        observe(program, CHECKPOINTED, primals)
    except BaseException as error:
        now.error = error
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    return checkpoint_wrapper(region)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: seen.error is None or seen.phase == 'forward'\nobserved:", error)
    sys.exit(1 if str(error).startswith("the region was not refused when it was called") else 2)
print("as specified")
