"""SEQ-04 on tensorplay 1.0.0+gite11450d, reentrant, 4: an impossible number of segments is no ValueError.

Specified: More segments than functions, none, or a negative number of them is refused with a ValueError.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    segments = 4

    def program(segments):
        return lambda checkpoint, x: in_segments(
            checkpoint, [lambda x: tensorplay.sin(tensorplay.clone(x)), tensorplay.exp, tensorplay.tanh], segments, x
        )

    seen = attempt(program(segments), tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

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
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def in_segments(checkpoint, functions, segments, *inputs, **options):
    if checkpoint is plainly:
        return functools.reduce(lambda value, function: function(value), functions, *inputs)
    return tensorplay.utils.checkpoint.checkpoint_sequential(
        functions, segments, *inputs, use_reentrant=True, **options
    )

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        tensorplay.autograd.backward(ys, [tensorplay.ones_like(y) for y in ys])
        return [tensorplay.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

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
