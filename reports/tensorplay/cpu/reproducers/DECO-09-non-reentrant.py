"""DECO-09 on tensorplay 1.0.0+gite11450d, non-reentrant: an unknown value was accepted.

Specified: An option's value that does not exist is refused when the decorator is made or applied, not at the first
call.
Observed: assert not [<ckptspec.conformance.handles._Decorated object at 0x…>]
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    accepted = []

    def program(checkpoint, x):
        @decorator_of(checkpoint)
        def region(x):
            return tensorplay.exp(tensorplay.sin(tensorplay.clone(x)))

        try:
            accepted[:] = [decorator_of(checkpoint, determinism_check="bogus")(tensorplay.sin)]
        except Exception:
            accepted.clear()
        return region(x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert not accepted, f"an unknown value was accepted: {accepted}"

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

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: not accepted\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("an unknown value was accepted"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("an unknown value was accepted") else 2)
print("as specified")
