"""IO-08 on tensorplay 1.0.0+gite11450d, non-reentrant, keyword: the replay was given another array.

Specified: An array among the arguments is in the replay the very object that it was in forward, attributes included.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    given = []

    def program(checkpoint, x):
        given.clear()

        def region(x):
            given.append(x)
            return tensorplay.exp(tensorplay.sin(tensorplay.clone(x)))

        return checkpoint(region, x=x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert all(x is given[0] for x in given), "the replay was given another array"

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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: all((x is given[0] for x in given))\nobserved:", error)
    sys.exit(1 if str(error).startswith("the replay was given another array") else 2)
print("as specified")
