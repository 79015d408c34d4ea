"""COMPILE-03 on torch-wrapper 2.13.0+cpu, composable: CheckpointError in backward.

Specified: Random operations of a region in a compiled program give in backward what they gave in forward.
Observed: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during the
forward pass. tensor at position 1: saved metadata: {'shape': torch.Size([64]), 'dtype': tor… and 1064 more characters
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    probe = ProbeOperator()

    def program(checkpoint, x):
        def step(x):
            y = checkpoint(lambda x: torch.exp(torch.nn.functional.dropout(torch.sin(probe(x)), 0.5)), x)
            return torch.multiply(y, torch.rand_like(x))

        return compiled_function(step)(x)

    run(program, torch.linspace(0.1, 0.9, 64, dtype=torch.float64))

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
    region = Region(function)
    return composable(region)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

class ProbeOperator:
    """An operator that returns what it is given, and counts how often it is executed."""
    every = []
    def __init__(self, name=""):
        self.every.append(self)
    def __call__(self, x):
        return probe_operator(x, self.every.index(self))

@torch.library.custom_op("reproducer::probe", mutates_args=())
def probe_operator(x: torch.Tensor, number: int) -> torch.Tensor:
    getattr(now, now.phase)[ProbeOperator.every[number]] += 1
    return x.clone()
probe_operator.register_autograd(lambda ctx, gradient: (gradient, None))
probe_operator.register_fake(lambda x, number: torch.empty_like(x))

def compiled_function(function):
    return torch.compile(function, backend="aot_eager") if now.checkpoint is CHECKPOINTED else function

class Region(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("CheckpointError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
