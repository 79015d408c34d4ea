"""FUNC-09 on tensorplay 1.0.0+gite11450d, reentrant: what the plain run refuses was accepted.

Specified: An argument that the plain run refuses to save for backward, made where nothing is recorded, is refused too.
Observed: assert 2 == 3
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    refused = []

    def program(checkpoint, x):
        with tensorplay.inference_mode():
            data = tensorplay.exp(tensorplay.sin(tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64)))
        try:
            checkpoint(lambda x, data: tensorplay.multiply(x, data), x, data)
        except RuntimeError as error:
            refused.append(error)
        return checkpoint(lambda x: tensorplay.exp(tensorplay.sin(tensorplay.clone(x))), x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert len(refused) == 3, f"what the plain run refuses was accepted: {len(refused)}"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

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
except AssertionError as error:
    print("expected: len(refused) == 3\nobserved:", error)
    sys.exit(1 if str(error).startswith("what the plain run refuses was accepted") else 2)
print("as specified")
