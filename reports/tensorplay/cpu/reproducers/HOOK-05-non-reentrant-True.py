"""HOOK-05 on tensorplay 1.0.0+gite11450d, non-reentrant, True: the hooks did not see the saved result as often as
asked.

Specified: With `respect_saved_tensors_hooks=True` a result that a policy saves passes through the surrounding hooks,
once; with False it bypasses them.
Observed: assert 0 == 1
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    shown, results = [], []

    def pack(array):
        shown.append(to_numpy(array).tolist())
        return array

    def program(checkpoint, x):
        def region(x):
            y = tensorplay.exp(x)
            results.append(to_numpy(y).tolist())
            return tensorplay.tanh(tensorplay.cos(tensorplay.clone(y)))

        shown.clear()
        results.clear()
        with tensorplay.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
            return checkpoint(region, x, context_fn=saving(["exp"]), respect_saved_tensors_hooks=True)

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64))

    assert shown.count(results[0]) == (1), "the hooks did not see the saved result as often as asked"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def plainly(function, *args, context_fn=None, respect_saved_tensors_hooks=None, **kwargs):
    return function(*args, **kwargs)

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

def saving(names):
    """Contexts that save the results of these operations."""
    return lambda: tensorplay.utils.checkpoint.create_selective_checkpoint_contexts([OPERATORS[name] for name in names])

CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {"exp": tensorplay.exp}
try:
    main()
except AssertionError as error:
    print("expected: shown.count(results[0]) == 1\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the hooks did not see the saved result as often as asked"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("the hooks did not see the saved result as often as asked") else 2)
print("as specified")
