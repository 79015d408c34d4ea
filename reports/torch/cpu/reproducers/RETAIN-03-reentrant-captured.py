"""RETAIN-03 on torch 2.13.0+cpu, reentrant, captured: a wrong gradient.

Specified: Where a parameter that the region multiplies by is updated between two backward calls, of which a plain run
refuses the second, the second gradient is that of the forward or there is an error.
Observed: [1][0]: [-0.024948, -0.327552, -0.488603, -0.0539207] plain, [-0.220816, -0, 0.786814, -0.422949] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    updated = []

    def without_update(checkpoint, x, w):
        updated[:] = []

        def region(x, w):
            return torch.cos(torch.sin(torch.multiply(torch.clone(x), w)))

        return checkpoint(lambda x: region(x, w), x)

    def program(checkpoint, x, w):
        y = without_update(checkpoint, x, w)
        updated.append(w)
        return y

    def backward(pull):
        first = pull(retain=True)
        for w in updated:
            torch.Tensor.add_(torch.Tensor.detach(w), 1.0)
        return first, pull()

    primals = torch.linspace(0.1, 0.9, 4, dtype=torch.float64), torch.tensor(
        [0.5, -1.0, 2.0, 0.25], dtype=torch.float64
    )
    run(without_update, *primals, backward=backward)
    attempt(program, *primals, backward=backward, plain=without_update)

def run(program, *primals, plain=None, backward):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(plain or program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def attempt(program, *primals, plain=None, backward):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(plain or program, plainly, primals, backward=backward)
    try:
        observed = results(program, CHECKPOINTED, primals, backward=backward)
    except Exception as error:
        print("an error will do:", error)
        return
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals, *, backward):
    torch.manual_seed(20180101)
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
    return value, arrays(backward(pull))

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys], retain_graph=retain)
        found = [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
        for x in xs:
            x.grad = None
        return found
    return value, pull

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
