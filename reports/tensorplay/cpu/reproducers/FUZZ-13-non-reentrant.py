"""FUZZ-13 on tensorplay 1.0.0+gite11450d, non-reentrant: RuntimeError in backward.

Specified: Whatever a policy function decides, from one execution of an operation to the next, values and gradients of
any program are those of the plain run.
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
        v1 = tensorplay.multiply(c, c)
        @decorator_of(checkpoint, context_fn=deciding(lambda name: name in ['sin', 'exp', 'matmul']))
        def region2(v3):
            v4 = tensorplay.clone(v3)
            v5 = tensorplay.sin(v4)
            return [v5]
        [v6] = region2(v1)
        def region7(n8):
            v9 = tensorplay.clone(v6)
            v10 = tensorplay.multiply(a, a)
            @decorator_of(checkpoint, context_fn=deciding(lambda name: name in ['sin', 'exp', 'matmul', 'cos', 'tanh']))
            def region11(v12, v13, v14):
                v13 = v13["key"]
                v15 = tensorplay.clone(v14)
                v16 = sum_along(c)
                v17 = sum_along(v12, axis=0)
                v18 = tensorplay.sin(v1)
                v19 = tensorplay.sigmoid(v17)
                v20 = tensorplay.square(b)
                v21 = tensorplay.cos(c)
                v22 = astype(v13, "float32")
                v23 = tensorplay.relu(v15)
                v24 = tensorplay.matmul(v23, v6)
                return {"k": v24, "l": v22, "m": v21}
            [v25, v26, v27] = region11(b, {"key": v10}, v10).values()
            return {"k": v27, "l": v26}
        [v28, v29] = checkpoint(
            region7, 1, context_fn=deciding(lambda name: name in ['exp', 'matmul', 'cos', 'add'])
        ).values()
        return v29, v28,

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

def deciding(policy):
    """Contexts that save what the policy says."""
    names = {operator: name for name, operator in OPERATORS.items()}
    def decide(context, operator, *args, **kwargs):
        answer = policy(names.get(operator))
        name = answer if isinstance(answer, str) else "MUST_SAVE" if answer else "PREFER_RECOMPUTE"
        return getattr(tensorplay.utils.checkpoint.CheckpointPolicy, name)
    return lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts(decide)

def sum_along(x, axis=None):
    return tensorplay.sum(x) if axis is None else tensorplay.sum(x, dim=axis)

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {
    "matmul": tensorplay.matmul, "sin": tensorplay.sin, "cos": tensorplay.cos, "exp": tensorplay.exp,
    "tanh": tensorplay.tanh, "add": tensorplay.add
}
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
