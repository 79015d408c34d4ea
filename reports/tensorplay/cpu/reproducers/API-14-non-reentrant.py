"""API-14 on tensorplay 1.0.0+gite11450d, non-reentrant: the context was left without the exception.

Specified: Where the function raises in forward, its context is left with that exception, which then reaches the caller.
Observed: assert [None] == [KeyError('th...ction fails')] At index 0 diff: None != KeyError('the function fails') Use -v
to get more diff
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    left, caught = [], []
    error = KeyError("the function fails")

    class Context:
        def __enter__(self):
            pass

        def __exit__(self, kind, value, trace):
            left.append(value)

    def program(checkpoint, x):
        def failing(x):
            raise error

        checkpoint = functools.partial(checkpoint, context_fn=lambda: (Context(), Context()))
        try:
            checkpoint(failing, x)
        except KeyError as found:
            caught.append(found)
        left_then = len(left)
        y = checkpoint(lambda x: tensorplay.exp(tensorplay.sin(tensorplay.clone(x))), x)
        del left[left_then:]
        return y

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert caught[-1] is error, "the exception was replaced"
    assert left[:1] == [error], f"the context was left without the exception: {left[:1]}"

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

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: left[:1] == [error]\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the context was left without the exception"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("the context was left without the exception") else 2)
print("as specified")
