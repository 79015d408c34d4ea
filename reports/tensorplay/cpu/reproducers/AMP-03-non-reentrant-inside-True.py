"""AMP-03 on tensorplay 1.0.0+gite11450d, non-reentrant, inside-True: RuntimeError in backward.

Specified: Gradients are right whether or not autocast has a weight's cast in its cache when the region or its replay
runs.
Observed: activation checkpoint replay mismatch: saved value metadata changed; forward saved values=4, replay saved
values=4
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, w):
        def region(x, w):
            y = tensorplay.matmul(tensorplay.clone(x), w)
            return tensorplay.exp(tensorplay.sin(y))

        with tensorplay.autocast(x.device.type, dtype=tensorplay.bfloat16, cache_enabled=True):
            # Cut off: gradients that met in a cached cast would be added in another dtype than those of two casts.
            z = 0.0
            return tensorplay.add(checkpoint(region, x, w), z)

    run(
        program, tensorplay.linspace(0.1, 0.9, 12, dtype=tensorplay.float32).reshape(4, 3), tensorplay.linspace(
            0.1, 0.9, 6, dtype=tensorplay.float32
        ).reshape(3, 2)
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
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        found = tensorplay.autograd.grad(ys, xs, [tensorplay.ones_like(y) for y in ys], allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
