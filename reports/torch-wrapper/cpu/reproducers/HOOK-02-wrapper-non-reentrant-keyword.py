"""HOOK-02 on torch-wrapper 2.13.0+cpu, wrapper non-reentrant, keyword: an argument was not shown to the hooks.

Specified: Hooks on saved values that surround a region are shown each array among its arguments once, however it was
passed and however often, and nothing else.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    shown = []

    def pack(array):
        shown.append(to_numpy(array).tolist())
        return array

    def program(checkpoint, x, w):
        def region(x, w=None, box=None, again=None):
            w = w if box is None else box[0]
            return torch.exp(torch.multiply(torch.sin(torch.clone(x)), torch.cos(w)))

        shown.clear()
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
            return checkpoint(region, x, w=w)

    x, w = torch.linspace(0.1, 0.9, 4, dtype=torch.float64), torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)
    run(program, x, w)

    expected = [to_numpy(x).tolist(), to_numpy(w).tolist()]
    assert all(array in shown for array in expected), "an argument was not shown to the hooks"

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
    return checkpoint_wrapper(region)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def to_numpy(x):
    return x.detach().cpu().numpy().copy()

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: all((array in shown for array in expected))\nobserved:", error)
    sys.exit(1 if str(error).startswith("an argument was not shown to the hooks") else 2)
print("as specified")
