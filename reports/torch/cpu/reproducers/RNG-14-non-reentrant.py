"""RNG-14 on torch 2.13.0+cpu, non-reentrant: a wrong gradient.

Specified: Where a policy saves a random operation's result, the replay's later random operations still draw what they
drew.
Observed: [0]: [0.698585, 1.50912, 0.943803, 0, …] plain, [0.698585, 0, 0.943803, 0, …] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x):
        def region(x):
            noise = torch.rand_like(x)
            return torch.exp(torch.nn.functional.dropout(torch.sin(torch.multiply(torch.clone(x), noise)), 0.5))

        return checkpoint(region, x, context_fn=saving(["uniform_like"]))

    run(program, torch.linspace(0.1, 0.9, 64, dtype=torch.float64))

def run(program, *primals):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals)
    observed = results(program, CHECKPOINTED, primals)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals):
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    return value, arrays(pull())

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

def saving(names):
    """Contexts that save the results of these operations."""
    return lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts([OPERATORS[name] for name in names])

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
OPERATORS = {"uniform_like": torch.ops.aten.rand_like.default}
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
