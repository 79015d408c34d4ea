"""RNG-10 on tensorplay 1.0.0+gite11450d, reentrant: the replay drew the same from a generator object.

Specified: What a region draws from a generator object of its own is drawn afresh in a replay.
Observed: assert [0.6659170985221863, 0.2509470582008362, 0.9566406607627869, 0.9496645927429199] !=
[0.6659170985221863, 0.2509470582008362, 0.9566406607627869, 0.9496645927429199]
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    drawn = []

    def program(checkpoint, x):
        generator = tensorplay.Generator()
        generator.manual_seed(5)

        def region(x):
            drawn.append(tensorplay.rand(4, generator=generator).tolist())
            return tensorplay.exp(tensorplay.sin(tensorplay.clone(x)))

        return checkpoint(region, x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert drawn[-1] != drawn[-2], f"the replay drew the same from a generator object: {drawn[-1]}"

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
    print("expected: drawn[-1] != drawn[-2]\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the replay drew the same from a generator object"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("the replay drew the same from a generator object") else 2)
print("as specified")
