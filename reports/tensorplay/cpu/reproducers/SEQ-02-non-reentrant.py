"""SEQ-02 on tensorplay 1.0.0+gite11450d, non-reentrant: a function of the last segment was replayed.

Specified: Ten functions in three segments are two regions of three functions, and four functions that are not replayed.
Observed: assert [1, 0, 0, 0] == [0, 0, 0, 0] At index 0 diff: 1 != 0 Use -v to get more diff
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    probes = [Probe(f"function {i}") for i in range(10)]

    def program(checkpoint, x):
        functions = [lambda x, probe=probe: tensorplay.sin(tensorplay.exp(probe(x))) for probe in probes]
        return in_segments(checkpoint, functions, 3, x)

    seen = run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert [seen.backward[p] for p in probes[:6]] == [1] * 6, "a function of the first segments was not replayed once"
    assert [seen.backward[p] for p in probes[6:]] == [0] * 4, "a function of the last segment was replayed"

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

def in_segments(checkpoint, functions, segments, *inputs, **options):
    if checkpoint is plainly:
        return functools.reduce(lambda value, function: function(value), functions, *inputs)
    return tensorplay.utils.checkpoint.checkpoint_sequential(
        functions, segments, *inputs, use_reentrant=False, **options
    )

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
    print("expected: [seen.backward[p] for p in probes[6:]] == [0] * 4\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("a function of the first segments was not replayed once"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("a function of the last segment was replayed") else 2)
print("as specified")
