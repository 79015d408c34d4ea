"""API-04 on torch-wrapper 2.13.0+cpu, wrapper reentrant: the warning points into the implementation.

Specified: The warning about a call that chooses no form names the line of that call.
Observed: assert False
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import contextlib
import sys
import types
import warnings
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    checkpoint_, found = torch.utils.checkpoint.checkpoint, []

    def program(checkpoint, x):
        with recorded_warnings() as warned:
            y = through(checkpoint, checkpoint_)(lambda x: torch.exp(torch.sin(torch.clone(x))), x)
        found.extend(w for w in warned if "use_reentrant" in w.text)
        return y

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert all(w.is_at_call for w in found), "the warning points into the implementation"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)

def observe(program, checkpoint, primals):
    torch.manual_seed(20180101)
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
    region = torch.nn.Module()
    region.forward = function.__call__
    return checkpoint_wrapper(region, checkpoint_impl=CheckpointImpl.REENTRANT)(*args, **kwargs)

def through(checkpoint, entry):
    return checkpoint if checkpoint is plainly else entry

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys])
        return [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: all((w.is_at_call for w in found))\nobserved:", error)
    sys.exit(1 if str(error).startswith("the warning points into the implementation") else 2)
print("as specified")
