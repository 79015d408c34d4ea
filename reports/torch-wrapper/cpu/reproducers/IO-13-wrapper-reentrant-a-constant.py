"""IO-13 on torch-wrapper 2.13.0+cpu, wrapper reentrant, a constant: AssertionError in backward.

Specified: A region may return an array that it captured, beside other results; the array is afterwards what it was
before.
Observed: the region is replayed without end assert 20 < 20
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    probe = Probe()

    def program(checkpoint, x, w):
        outside = torch.Tensor.detach(w)

        def region(x):
            assert probe.executions < 20, "the region is replayed without end"
            return outside, torch.exp(torch.sin(probe(x)))

        same, y = checkpoint(region, x)
        return torch.multiply(torch.multiply(same, y), outside)

    run(
        program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64),
        torch.tensor([0.5, -1.0, 2.0, 0.25], dtype=torch.float64)
    )

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
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    return checkpoint_wrapper(region, checkpoint_impl=CheckpointImpl.REENTRANT)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

class Probe:
    """A function that returns what it is given, and counts how often it is executed."""
    def __init__(self, name=""):
        self.name = name
        self.executions = 0
    def __call__(self, x):
        self.executions += 1
        getattr(now, now.phase)[self] += 1
        return x.clone()

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("AssertionError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
