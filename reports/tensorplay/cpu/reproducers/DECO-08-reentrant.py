"""DECO-08 on tensorplay 1.0.0+gite11450d, reentrant: a warning points into the implementation.

Specified: Where a decorator chooses neither form, each call warns and names its line; the decoration does not.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import contextlib
import sys
import types
import warnings
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    decorator, at_decoration, at_call = tensorplay.utils.checkpoint.checkpoint, [], []

    def program(checkpoint, x):
        def decorated(region, x):
            with recorded_warnings() as warned:
                region = decorator()(region)
            at_decoration.extend(warned)
            with recorded_warnings() as warned:
                y = region(x)
            at_call.extend(warned)
            return y

        return through(checkpoint, decorated)(lambda x: tensorplay.exp(tensorplay.sin(tensorplay.clone(x))), x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert not at_decoration, "the decoration warned"
    assert len(at_call) == 1, "the call did not warn, or more than once"
    assert all(w.is_at_call for w in at_call), "a warning points into the implementation"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

@contextlib.contextmanager
def recorded_warnings():
    found = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield found
    found += [types.SimpleNamespace(text=str(w.message), is_at_call=w.filename == __file__) for w in caught]

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def through(checkpoint, entry):
    return checkpoint if checkpoint is plainly else entry

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
    print("expected: all((w.is_at_call for w in at_call))\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the call did not warn, or more than once"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("a warning points into the implementation") else 2)
print("as specified")
