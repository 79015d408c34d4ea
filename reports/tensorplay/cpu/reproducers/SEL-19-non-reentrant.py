"""SEL-19 on tensorplay 1.0.0+gite11450d, non-reentrant: RuntimeError in backward.

Specified: Detaching an array and reading its metadata are not shown to a policy, and may differ between forward and
replay.
Observed: checkpoint replay requested an uncached operation
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    asked = []

    def policy(context, operation, *args, **kwargs):
        asked.append(str(operation))
        return "exp" in asked[-1]

    def program(checkpoint, x):
        def region(x):
            y = tensorplay.exp(tensorplay.sin(tensorplay.clone(x)))
            times = 3 if now.phase == "backward" else 1
            for _ in range(times):
                assert (y.detach().shape, y.dim(), y.stride(), y.numel()) is not None
            return tensorplay.sin(y)

        contexts = lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts(policy)
        return checkpoint(region, x, context_fn=contexts)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
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

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
