"""SEQ-04 on torch 2.13.0+cpu, non-reentrant, 0: an impossible number of segments is no ValueError.

Specified: More segments than functions, none, or a negative number of them is refused with a ValueError.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    segments = 0

    def program(segments):
        return lambda checkpoint, x: in_segments(
            checkpoint, [lambda x: torch.sin(torch.clone(x)), torch.exp, torch.tanh], segments, x
        )

    seen = attempt(program(segments), torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert isinstance(seen.error, ValueError), "an impossible number of segments is no ValueError"

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
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def in_segments(checkpoint, functions, segments, *inputs, **options):
    if checkpoint is plainly:
        return functools.reduce(lambda value, function: function(value), functions, *inputs)
    return torch.utils.checkpoint.checkpoint_sequential(functions, segments, *inputs, use_reentrant=False, **options)

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
    print("expected: isinstance(seen.error, ValueError)\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("an impossible number of segments is no ValueError"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("an impossible number of segments is no ValueError") else 2)
print("as specified")
