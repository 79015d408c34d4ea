"""DECO-02 on tensorplay 1.0.0+gite11450d, reentrant, determinism_check: TypeError in forward.

Specified: Keywords of the decorated function are its own, also where an option has the same name.
Observed: tensorplay.utils.checkpoint.checkpoint() got multiple values for keyword argument 'determinism_check'
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, w):
        @decorator_of(checkpoint)
        def region(x, **given):
            return tensorplay.exp(tensorplay.multiply(tensorplay.sin(tensorplay.clone(x)), given["determinism_check"]))

        return region(x, determinism_check=w)

    run(
        program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64),
        tensorplay.tensor([0.5, -1.0, 2.0, 0.25], dtype=tensorplay.float64)
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
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else tensorplay.utils.checkpoint.checkpoint(
        use_reentrant=True, **options
    )

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        tensorplay.autograd.backward(ys, [tensorplay.ones_like(y) for y in ys])
        return [tensorplay.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("TypeError in forward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
