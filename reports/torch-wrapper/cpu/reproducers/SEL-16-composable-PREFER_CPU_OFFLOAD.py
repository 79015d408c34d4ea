"""SEL-16 on torch-wrapper 2.13.0+cpu, composable, PREFER_CPU_OFFLOAD: an offloaded operation was executed again.

Specified: An operation whose result the policy keeps in the host's memory is not executed in the replay.
Observed: assert 1 == 0
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    offloaded, other = ProbeOperator("offloaded"), ProbeOperator("other")

    def program(checkpoint, x):
        asked = []

        def policy(operation):
            if operation != "probe":
                return False
            asked.append(operation)
            return "PREFER_CPU_OFFLOAD" if len(asked) == 1 else False

        return checkpoint(
            lambda x: torch.exp(other(torch.sin(offloaded(torch.exp(x))))), x, context_fn=deciding(policy)
        )

    seen = run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert seen.backward[offloaded] == 0, "an offloaded operation was executed again"

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
    options = {name: kwargs.pop(name) for name in {"context_fn"} & set(kwargs)}
    return composable(region, **options)(*args, **kwargs)

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

def deciding(policy):
    """Contexts that save what the policy says."""
    names = {operator: name for name, operator in OPERATORS.items()}
    def decide(context, operator, *args, **kwargs):
        answer = policy(names.get(operator))
        name = answer if isinstance(answer, str) else "MUST_SAVE" if answer else "PREFER_RECOMPUTE"
        return getattr(torch.utils.checkpoint.CheckpointPolicy, name)
    return lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts(decide)

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {"probe": torch.ops.reproducer.probe.default}
try:
    main()
except AssertionError as error:
    print("expected: seen.backward[offloaded] == 0\nobserved:", error)
    sys.exit(1 if str(error).startswith("an offloaded operation was executed again") else 2)
print("as specified")
