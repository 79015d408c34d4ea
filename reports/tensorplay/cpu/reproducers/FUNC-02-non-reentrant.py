"""FUNC-02 on tensorplay 1.0.0+gite11450d, non-reentrant: a saved array came back otherwise than in the plain run.

Specified: A custom operation's saved arrays need a gradient in its derivative as in the plain run; a captured one that
needs none is the very object that was saved.
Observed: assert [False, False, False] == [True, False, True] At index 0 diff: False != True Use -v to get more diff
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    mask, found = tensorplay.tensor([1.0, 0.0, 1.0, 1.0], dtype=tensorplay.float64), []

    def program(checkpoint, x):
        class Masked(tensorplay.autograd.Function):
            @staticmethod
            def forward(ctx, x, mask):
                ctx.save_for_backward(x, mask)
                return tensorplay.multiply(tensorplay.sin(tensorplay.clone(x)), mask)

            @staticmethod
            def backward(ctx, gradient):
                x, saved = ctx.saved_tensors
                found.append([needs_gradient(x), needs_gradient(saved), saved is mask])
                return tensorplay.multiply(gradient, tensorplay.multiply(tensorplay.cos(x), saved)), None

        return checkpoint(lambda x: tensorplay.exp(Masked.apply(tensorplay.exp(x), mask)), x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert found[-1] == found[0], "a saved array came back otherwise than in the plain run"

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
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        found = tensorplay.autograd.grad(ys, xs, [tensorplay.ones_like(y) for y in ys], allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

def needs_gradient(x):
    return x.requires_grad

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: found[-1] == found[0]\nobserved:", error)
    sys.exit(1 if str(error).startswith("a saved array came back otherwise than in the plain run") else 2)
print("as specified")
