"""HO-01 on torch-wrapper 2.13.0+cpu, composable, 2-one: AttributeError in backward.

Specified: Gradients of gradients through regions are those of the plain call, to the third order, also of captured
arrays.
Observed: '_GeneratorContextManager' object has no attribute 'args'
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x, w):
        def region(x):
            return torch.exp(torch.sin(torch.multiply(torch.clone(x), w)))

        def loss(x):
            y = checkpoint(region, x)
            return y

        for _ in range(2 - 1):
            loss = gradient_of(loss)
        return loss(x)

    primals = torch.linspace(0.1, 0.9, 4, dtype=torch.float64), torch.tensor(
        [0.5, -1.0, 2.0, 0.25], dtype=torch.float64
    )
    run(program, *primals)

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    observe(program, CHECKPOINTED, primals)
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    return composable(region)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def gradient_of(function):
    """The gradient of the sum of what the function returns, itself differentiable."""
    def gradient(x):
        x = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]
    return gradient

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("AttributeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
