"""STOP-03 on tensorplay 1.0.0+gite11450d, non-reentrant, on-off-True: another setting than the innermost one held.

Specified: The innermost setting around a call decides whether its replays end early; one of None leaves it to the
option.
Observed: assert 0 == 1
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    head, tail = Probe("head"), Probe("tail")
    values = [{"none": None, "on": True, "off": False}[setting] for setting in ['on', 'off']]

    def program(checkpoint, x):
        def call(values):
            if not values:
                return checkpoint(
                    lambda x: tail(tensorplay.add(tensorplay.sin(tensorplay.exp(head(x))), 1.0)), x, early_stop=True
                )
            with tensorplay.utils.checkpoint.set_checkpoint_early_stop(values[0]):
                return call(values[1:])

        return call(values)

    seen = run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    stops = True if values[-1] is None else values[-1]
    assert seen.backward[tail] == (0 if stops else 1), "another setting than the innermost one held"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    now.forward, now.backward = Counter(), Counter()
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

class Probe:
    """A function that returns what it is given, and counts how often it is executed."""
    def __init__(self, name=""):
        self.name = name
    def __call__(self, x):
        getattr(now, now.phase)[self] += 1
        return x.clone()

plainly = lambda function, *args, early_stop=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: seen.backward[tail] == (0 if stops else 1)\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("another setting than the innermost one held"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("another setting than the innermost one held") else 2)
print("as specified")
