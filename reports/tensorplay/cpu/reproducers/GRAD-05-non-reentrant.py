"""GRAD-05 on tensorplay 1.0.0+gite11450d, non-reentrant: no replay was seen in backward.

Specified: Parameters get their gradients although none of the region's arguments needs one.
Observed: : 0 executions, at least 1 needed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    probe, data = Probe(), tensorplay.tensor([1.0, 2.0, 3.0, 4.0], dtype=tensorplay.float64)

    def program(checkpoint, w):
        def region(data):
            return tensorplay.tanh(tensorplay.multiply(tensorplay.sin(probe(data)), w))

        # The sum keeps a gradient that the region loses from being an error.
        return tensorplay.add(checkpoint(region, data), w)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    first = now
    observe(program, CHECKPOINTED, primals)
    found = max(n - first.backward[p] for p, n in [(0, 0), *now.backward.items()])
    assert found >= (True), f"no replay was seen in backward: {found} executions"
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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: an execution in backward\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("no replay was seen in backward"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("no replay was seen in backward") else 2)
print("as specified")
