"""STOP-12 on tensorplay 1.0.0+gite11450d, non-reentrant: another thread's setting held.

Specified: A setting that one thread has made does not hold for the regions that another thread calls.
Observed: assert 1 == 0
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import concurrent.futures
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    head, tail = Probe("head"), Probe("tail")

    def program(checkpoint, x):
        def region(x):
            return tail(tensorplay.add(tensorplay.sin(tensorplay.exp(head(x))), 1.0))

        with tensorplay.utils.checkpoint.set_checkpoint_early_stop(False):
            (y,) = in_threads(lambda: checkpoint(region, x))
        return y

    seen = run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert seen.backward[tail] == 0, f"another thread's setting held: {seen.backward[tail]}"

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

def in_threads(*calls):
    """The results of calls at the same time, each in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))

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
    print("expected: seen.backward[tail] == 0\nobserved:", error)
    sys.exit(1 if str(error).startswith("another thread's setting held") else 2)
print("as specified")
