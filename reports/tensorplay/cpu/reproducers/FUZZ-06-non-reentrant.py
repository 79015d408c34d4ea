"""FUZZ-06 on tensorplay 1.0.0+gite11450d, non-reentrant: RuntimeError in backward.

Specified: Whatever a policy saves, values and gradients of any program with random operations are those of the plain
run.
Observed: checkpoint replay requested an uncached operation
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    def program(checkpoint, a, b, c):
        v1 = astype(b, "int64")
        v2 = tensorplay.exp(c)
        v3 = tensorplay.tanh(v2)
        v4 = tensorplay.square(v3)
        v5 = tensorplay.multiply(v2, tensorplay.rand_like(v2))
        v6 = tensorplay.unsqueeze(b, 0)
        v7 = tensorplay.square(v4)
        v8 = v5[0]
        v9 = tensorplay.multiply(v6, tensorplay.rand_like(v6))
        v10 = tensorplay.sigmoid(v9)
        v11 = tensorplay.tanh(v2)
        v12 = astype(v9, "int64")
        v13 = tensorplay.multiply(b, tensorplay.rand_like(b))
        def region14(v15, v16, v17):
            v16 = v16["key"]
            v18 = tensorplay.clone(v16)
            v19 = tensorplay.sin(v18)
            return v19
        v20 = checkpoint(
            region14, v3, {"key": v8}, v12, context_fn=saving(['sin', 'matmul', 'tanh', 'reshape', 'uniform_like'])
        )
        return a, v20,

    primals = (
        tensorplay.tensor([-0.7, -0.38, -0.06, 0.26, 0.58, 0.9], dtype=tensorplay.float64).reshape(2, 3),
        tensorplay.tensor([-0.65, 0.15, 0.95], dtype=tensorplay.float64),
        tensorplay.tensor([-0.6, -0.28, 0.04, 0.36, 0.68, 1.0], dtype=tensorplay.float64).reshape(3, 2),
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

def saving(names):
    """Contexts that save the results of these operations."""
    return lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts([OPERATORS[name] for name in names])

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {
    "matmul": tensorplay.matmul, "sin": tensorplay.sin, "tanh": tensorplay.tanh, "reshape": tensorplay.reshape,
    "uniform_like": tensorplay.rand_like
}
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
