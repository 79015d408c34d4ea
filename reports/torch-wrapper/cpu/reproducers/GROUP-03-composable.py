"""GROUP-03 on torch-wrapper 2.13.0+cpu, composable: AttributeError in backward.

Specified: Where a call within a group needs a value that an earlier one used, its gradient is right or there is an
error; outside of the group the graph can be differentiated as before.
Observed: '_GeneratorContextManager' object has no attribute 'args'
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import contextlib
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    groups, refused = {}, []

    def program(checkpoint, x):
        groups["one"] = group_of(checkpoint)
        return checkpoint(lambda x: torch.exp(torch.sin(torch.clone(x))), x)

    def afterwards(pull):
        with groups["one"]:
            pull(retain=True)
            try:
                pull(retain=True)
            except Exception as error:
                refused.append(error)
        return pull()

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64), backward=afterwards)

def run(program, *primals, backward):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals, backward=backward)
    observe(program, CHECKPOINTED, primals, backward=backward)
    return now

def observe(program, checkpoint, primals, *, backward):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    backward(pull)

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    return composable(region)(*args, **kwargs)

def group_of(checkpoint):
    return contextlib.nullcontext() if checkpoint is plainly else torch.utils.checkpoint.GraphExecGroup()

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        ones = [torch.ones_like(y) for y in ys]
        return torch.autograd.grad(ys, xs, ones, retain_graph=retain, materialize_grads=True)
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("AttributeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
