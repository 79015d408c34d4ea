"""ERR-05 on tensorplay 1.0.0+gite11450d, non-reentrant: an operation of forward is missing.

Specified: With debug, the error about a replay that differs lists the operations of both executions and where they were
called, and has the plain error as its cause.
Observed: assert 'cos' in 'activation checkpoint replay mismatch: the number of saved values changed; forward saved
values=3, replay saved value...: shape=[4] dtype=9 device=0:-1\\nreplay slots:\\n 0: shape=[4] … and 56 more characters
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def region(x):
        y = tensorplay.sin(tensorplay.clone(x))
        return tensorplay.tanh(y) if now.phase == "backward" else tensorplay.exp(tensorplay.cos(y))

    def program(checkpoint, x):
        return checkpoint(region, x, debug=True)

    def backward(pull):
        pull()

    seen = attempt(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64), backward=backward)

    assert seen.error is not None, "a replay that saves fewer values passed unnoticed"
    text = str(seen.error)
    assert "cos" in text, "an operation of forward is missing"

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

plainly = lambda function, *args, debug=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: 'cos' in text\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("a replay that saves fewer values passed unnoticed"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("an operation of forward is missing") else 2)
print("as specified")
