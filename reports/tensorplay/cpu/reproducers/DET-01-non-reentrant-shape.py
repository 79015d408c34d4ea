"""DET-01 on tensorplay 1.0.0+gite11450d, non-reentrant, shape: a replay with other metadata passed unnoticed.

Specified: A saved value that has another shape or dtype in the replay is an error.
Observed: assert None is not None
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x):
        def region(x):
            y = tensorplay.clone(x)
            if now.phase == "backward":
                y = tensorplay.reshape(y, (1, 4))
            return tensorplay.sin(y)

        return checkpoint(region, x)

    def backward(pull):
        pull()  # where nothing is noticed, its value is that of another computation

    seen = attempt(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64), backward=backward)

    assert seen.error is not None, f"a replay with other metadata passed unnoticed: {seen.error}"

def attempt(program, *primals, backward):
    """Run the program plain, twice, then checkpointed; what was seen in the last run, also its exception."""
    for _ in range(2):
        observe(program, plainly, primals, backward=backward)
    try:
        observe(program, CHECKPOINTED, primals, backward=backward)
    except BaseException as error:
        now.error = error
    return now

def observe(program, checkpoint, primals, *, backward):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    backward(pull)

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        ones = [tensorplay.ones_like(y) for y in ys]
        found = tensorplay.autograd.grad(ys, xs, ones, retain_graph=retain, allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: seen.error is not None\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("a replay with other metadata passed unnoticed"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("a replay with other metadata passed unnoticed") else 2)
print("as specified")
