"""FUZZ-08 on torch-wrapper 2.13.0+cpu, composable: AttributeError in backward.

Specified: Gradients of gradients of any program are those of the plain run.
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
    def program(checkpoint, a, b, c):
        v1 = torch.cos(c)
        v2 = torch.matmul(a, b)
        def region3(v4, v5):
            v5 = v5["key"]
            v6 = torch.clone(v5)
            v7 = torch.sum(v6, axis=0)
            return {"k": v7, "l": v5}
        [v8, v9] = checkpoint(region3, v1, {"key": v1}).values()
        v10 = torch.reshape(v2, (2,))
        v11 = torch.relu(v8)
        v12 = torch.tanh(v9)
        v13 = torch.cos(v8)
        v14 = torch.square(c)
        def region15(v16):
            v17 = torch.clone(v16)
            v18 = custom(torch.sin, torch.multiply)(v11)
            v19 = torch.matmul(a, b)
            return v19, v16
        v20, v21 = checkpoint(region15, v14)
        return v20, v21, v10, v12, v13,

    primals = (
        torch.tensor([-0.7, -0.17, 0.37, 0.9], dtype=torch.float32).reshape(2, 2),
        torch.tensor([-0.65, 0.95], dtype=torch.float32).reshape(2, 1),
        torch.tensor([-0.6, 1.0], dtype=torch.float64),
    )
    first, *others = primals

    def slope(checkpoint, x):
        return gradient_of(lambda x: torch.square(program(checkpoint, x, *others)[0]))(x)

    run(slope, first)

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

def custom(function, derivative):
    """A function with a backward of its own."""
    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return function(x)
        @staticmethod
        def backward(context, gradient):
            return derivative(gradient, *context.saved_tensors)
    return Custom.apply

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("AttributeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
