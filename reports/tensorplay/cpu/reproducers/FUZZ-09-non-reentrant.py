"""FUZZ-09 on tensorplay 1.0.0+gite11450d, non-reentrant: RuntimeError in backward.

Specified: Whatever a policy saves, values and gradients of any program of pure operations are those of the plain run.
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
        v1 = tensorplay.lt(c, a)
        v2 = tensorplay.multiply(c, a)
        v3 = tensorplay.unsqueeze(c, 0)
        v4 = tensorplay.matmul(v2, v2)
        def region5(n6):
            v7 = tensorplay.clone(v4)
            v8 = tensorplay.exp(v7)
            v9 = tensorplay.add(v7, v4)
            def region10(n14, v11, v12, v13):
                v11 = v11[0]
                v12 = v12["key"]
                v15 = tensorplay.clone(v13)
                def region16(n17):
                    v18 = tensorplay.clone(v15)
                    v19 = tensorplay.sin(v18)
                    return v19, v18
                v20, v21 = checkpoint(
                    region16, 1, context_fn=saving(['sin', 'exp', 'multiply', 'matmul', 'tanh', 'add', 'reshape'])
                )
                @decorator_of(checkpoint, context_fn=saving(['sin', 'exp', 'multiply', 'matmul', 'tanh', 'add']))
                def region22():
                    v23 = tensorplay.clone(v21)
                    v24 = tensorplay.concat([v11, v11])
                    @decorator_of(checkpoint, context_fn=saving(['matmul', 'cos', 'add', 'reshape']))
                    def region25():
                        v26 = tensorplay.clone(v24)
                        v27 = tensorplay.cos(v12)
                        v28 = tensorplay.exp(v27)
                        return v28, v26
                    v29, v30 = region25()
                    return v30, v29
                v31, v32 = region22()
                return v32, v31
            v33, v34 = checkpoint(
                region10, 1, [v3], {"key": v8}, v9, context_fn=saving(['sin', 'exp', 'add', 'reshape'])
            )
            return v34, v33
        v35, v36 = checkpoint(region5, 2, context_fn=saving(['exp', 'multiply', 'cos', 'add', 'reshape']))
        return v36, v35, v1,

    primals = (
        tensorplay.tensor([-0.7, -0.5, -0.3, -0.1, 0.1, 0.3, 0.5, 0.7, 0.9], dtype=tensorplay.float64).reshape(3, 3),
        tensorplay.tensor([0, 1, 2, 3, 4, 5, 6, 7, 8], dtype=tensorplay.int64).reshape(3, 3),
        tensorplay.tensor([0.7], dtype=tensorplay.float64).reshape(()),
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
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in primals]
    every, xs = xs, [x for x in xs if x.requires_grad]
    value = tree_leaves(function(*every))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        found = tensorplay.autograd.grad(ys, xs, [tensorplay.ones_like(y) for y in ys], allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

def saving(names):
    """Contexts that save the results of these operations."""
    return lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts([OPERATORS[name] for name in names])

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {
    "matmul": tensorplay.matmul, "sin": tensorplay.sin, "cos": tensorplay.cos, "exp": tensorplay.exp,
    "tanh": tensorplay.tanh, "add": tensorplay.add, "reshape": tensorplay.reshape,
    "multiply": tensorplay.Tensor.multiply
}
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("RuntimeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
