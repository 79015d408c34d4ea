"""HOOK-02 on tensorplay 1.0.0+gite11450d, non-reentrant, keyword: an argument was not shown to the hooks.

Specified: Hooks on saved values that surround a region are shown each array among its arguments once, however it was
passed and however often, and nothing else.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    shown = []

    def pack(array):
        shown.append(to_numpy(array).tolist())
        return array

    def program(checkpoint, x, w):
        def region(x, w=None, box=None, again=None):
            w = w if box is None else box[0]
            return tensorplay.exp(tensorplay.multiply(tensorplay.sin(tensorplay.clone(x)), tensorplay.cos(w)))

        shown.clear()
        with tensorplay.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
            return checkpoint(region, x, w=w)

    x, w = tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64), tensorplay.tensor(
        [0.5, -1.0, 2.0, 0.25], dtype=tensorplay.float64
    )
    run(program, x, w)

    expected = [to_numpy(x).tolist(), to_numpy(w).tolist()]
    assert all(array in shown for array in expected), "an argument was not shown to the hooks"

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

def to_numpy(x):
    return x.detach().cpu().numpy().copy()

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: all((array in shown for array in expected))\nobserved:", error)
    sys.exit(1 if str(error).startswith("an argument was not shown to the hooks") else 2)
print("as specified")
