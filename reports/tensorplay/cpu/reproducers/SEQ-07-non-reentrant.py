"""SEQ-07 on tensorplay 1.0.0+gite11450d, non-reentrant: not one warning that names `use_reentrant`.

Specified: A sequence that is not told `use_reentrant` warns that the form should be chosen, once.
Observed: assert 2 == 1
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import contextlib
import functools
import sys
import types
import warnings
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    caught = []

    def program(checkpoint, x):
        caught.clear()
        functions = [lambda x: tensorplay.sin(tensorplay.clone(x)), tensorplay.exp, tensorplay.tanh]
        with recorded_warnings() as warned:
            tensorplay.utils.checkpoint.checkpoint_sequential(functions, 3, x)
        caught.extend(warned)
        return in_segments(checkpoint, functions, 3, x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert sum("use_reentrant" in warning.text for warning in caught) == 1, "not one warning that names `use_reentrant`"

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
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def in_segments(checkpoint, functions, segments, *inputs, **options):
    if checkpoint is plainly:
        return functools.reduce(lambda value, function: function(value), functions, *inputs)
    return tensorplay.utils.checkpoint.checkpoint_sequential(
        functions, segments, *inputs, use_reentrant=False, **options
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
    print("expected: sum(('use_reentrant' in warning.text for warning in caught)) == 1\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("not one warning that names `use_reentrant`"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("not one warning that names `use_reentrant`") else 2)
print("as specified")
