"""SEL-21 on tensorplay 1.0.0+gite11450d, non-reentrant: RuntimeError in backward.

Specified: A policy may save one execution of an operation and not the next; the replay keeps them apart.
Observed: checkpoint replay requested an uncached operation
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
from collections import Counter
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.overrides import wrap_tensorplay_function
from tensorplay.utils._pytree import tree_leaves

def main():
    first, second = ProbeOperator("first"), ProbeOperator("second")

    def program(checkpoint, x):
        asked = []

        def policy(operation):
            if operation == "probe":
                asked.append(operation)
            return operation == "probe" and len(asked) == 1

        def region(x):
            y = first(tensorplay.exp(tensorplay.sin(x)))
            return tensorplay.sin(tensorplay.exp(second(tensorplay.cos(y))))

        return checkpoint(region, x, context_fn=deciding(policy))

    seen = run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

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

class ProbeOperator:
    """An operation that returns what it is given, and counts how often it is executed."""
    def __init__(self, name=""):
        self.name = name
    def __call__(self, x):
        return probe_operator(x, self)

def deciding(policy):
    """Contexts that save what the policy says."""
    names = {operator: name for name, operator in OPERATORS.items()}
    def decide(context, operator, *args, **kwargs):
        answer = policy(names.get(operator))
        name = answer if isinstance(answer, str) else "MUST_SAVE" if answer else "PREFER_RECOMPUTE"
        return getattr(tensorplay.utils.checkpoint.CheckpointPolicy, name)
    return lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts(decide)

def _execute(x, probe):
    getattr(now, now.phase)[probe] += 1
    return x.clone()

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
probe_operator = wrap_tensorplay_function(lambda x, probe: (x,))(_execute)
OPERATORS = {"probe": probe_operator}
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
