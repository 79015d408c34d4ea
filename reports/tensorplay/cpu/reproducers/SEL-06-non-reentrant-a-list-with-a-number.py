"""SEL-06 on tensorplay 1.0.0+gite11450d, non-reentrant, a list with a number: what is no policy was accepted.

Specified: A policy that is neither a function nor a list of operations is refused with a TypeError or ValueError.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    bad = [3]

    def program(checkpoint, x):
        contexts = lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts(bad)
        return checkpoint(lambda x: tensorplay.sin(tensorplay.exp(tensorplay.clone(x))), x, context_fn=contexts)

    seen = attempt(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert isinstance(seen.error, TypeError | ValueError), "what is no policy was accepted"

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
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        found = tensorplay.autograd.grad(ys, xs, [tensorplay.ones_like(y) for y in ys], allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: isinstance(seen.error, TypeError | ValueError)\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("what is no policy was accepted"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("what is no policy was accepted") else 2)
print("as specified")
