"""SEQ-08 on torch 2.13.0+cpu, reentrant: ValueError in forward.

Specified: A sequence of no functions returns its input.
Observed: range() arg 3 must not be zero
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x):
        x = in_segments(checkpoint, [], 1, x)
        return in_segments(checkpoint, [lambda x: torch.sin(torch.clone(x)), torch.exp], 2, x)

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def in_segments(checkpoint, functions, segments, *inputs, **options):
    if checkpoint is plainly:
        return functools.reduce(lambda value, function: function(value), functions, *inputs)
    return torch.utils.checkpoint.checkpoint_sequential(functions, segments, *inputs, use_reentrant=True, **options)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("ValueError in forward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
