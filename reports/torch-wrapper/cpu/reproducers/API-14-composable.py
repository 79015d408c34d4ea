"""API-14 on torch-wrapper 2.13.0+cpu, composable: the context was left without the exception.

Specified: Where the function raises in forward, its context is left with that exception, which then reaches the caller.
Observed: assert [None] == [KeyError('th...ction fails')] At index 0 diff: None != KeyError('the function fails') Use -v
to get more diff
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import functools
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

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
        y = checkpoint(lambda x: torch.exp(torch.sin(torch.clone(x))), x)
        del left[left_then:]
        return y

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert caught[-1] is error, "the exception was replaced"
    assert left[:1] == [error], f"the context was left without the exception: {left[:1]}"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    pull()

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    options = {name: kwargs.pop(name) for name in {"context_fn"} & set(kwargs)}
    return composable(region, **options)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

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
