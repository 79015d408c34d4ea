"""FUZZ-14 on tensorplay 1.0.0+gite11450d, non-reentrant: RuntimeError in backward.

Specified: Values and gradients of any program whose parts run under autocast are those of the plain run.
Observed: activation checkpoint replay mismatch: saved value metadata changed; forward saved values=13, replay saved
values=13
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        v1 = tensorplay.exp(c)
        with autocast(a):
            def region2(n4, v3):
                v5 = tensorplay.clone(v3)
                v6 = astype(tensorplay.matmul(b, v5), "float32")
                v7 = tensorplay.reshape(v6, (9,))
                v8 = sum_along(v3)
                v9 = tensorplay.square(v5)
                v10 = astype(tensorplay.matmul(v9, v9), "float32")
                v11 = tensorplay.multiply(b, v1)
                @decorator_of(checkpoint)
                def region12(v13):
                    v14 = tensorplay.clone(v13)
                    v15 = tensorplay.sin(v14)
                    return {"k": v15, "l": v14, "m": v13}
                [v16, v17, v18] = region12(v6).values()
                v19 = sum_along(v10)
                v20 = mean_along(v16, axis=-1)
                v21 = astype(tensorplay.matmul(v18, v18), "float32")
                v22 = tensorplay.lt(v8, a)
                v23 = tensorplay.add(c, v18)
                return v23, v11, v17
            v24, v25, v26 = checkpoint(region2, 2, c)
        return a, v26, v24, v25,

    primals = (
        tensorplay.tensor([-0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9], dtype=tensorplay.float32).reshape(3, 3),
        tensorplay.tensor([-0.65, -0.45, -0.25, -0.05, 0.15, 0.35, 0.55, 0.75, 0.95], dtype=tensorplay.float32).reshape(
            3, 3
        ),
        tensorplay.tensor([-0.6, -0.4, -0.2, 0.0, 0.2, 0.4, 0.6, 0.8, 1.0], dtype=tensorplay.float32).reshape(3, 3),
    )
    run(program, *primals)

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

def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else tensorplay.utils.checkpoint.checkpoint(
        use_reentrant=False, **options
    )

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        found = tensorplay.autograd.grad(ys, xs, [tensorplay.ones_like(y) for y in ys], allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

def astype(x, dtype):
    return x.to(getattr(tensorplay, dtype))

def autocast(x):
    return tensorplay.autocast(x.device.type, tensorplay.bfloat16, cache_enabled=False)

def sum_along(x, axis=None):
    return tensorplay.sum(x) if axis is None else tensorplay.sum(x, dim=axis)

def mean_along(x, axis=None):
    return tensorplay.mean(x) if axis is None else tensorplay.mean(x, dim=axis)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
