"""NEST-08 on tensorplay 1.0.0+gite11450d, reentrant, backward: what a region captured is alive after the outputs are
gone.

Specified: What nested regions captured is released when the program's outputs are, without a garbage collection.
Observed: assert not True
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import gc
import sys
import weakref
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    alive = []

    class Captured:
        pass

    def program(checkpoint, x):
        outer_captured, inner_captured = Captured(), Captured()
        alive.extend(watch(captured) for captured in (outer_captured, inner_captured))

        def inner(x):
            assert inner_captured is not None
            return tensorplay.exp(tensorplay.sin(tensorplay.clone(x)))

        def outer(x):
            assert outer_captured is not None
            return tensorplay.exp(tensorplay.sin(checkpoint(inner, tensorplay.cos(x))))

        return checkpoint(outer, x)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert not any(is_alive() for is_alive in alive), "what a region captured is alive after the outputs are gone"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def watch(thing):
    """A function that says whether the object is alive; reference counting alone must release it."""
    gc.disable()
    reference = weakref.ref(thing)
    return lambda: reference() is not None

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
    print("expected: not any((is_alive() for is_alive in alive))\nobserved:", error)
    sys.exit(1 if str(error).startswith("what a region captured is alive after the outputs are gone") else 2)
print("as specified")
