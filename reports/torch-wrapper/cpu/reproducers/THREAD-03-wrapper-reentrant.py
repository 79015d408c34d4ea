"""THREAD-03 on torch-wrapper 2.13.0+cpu, wrapper reentrant: a wrong gradient.

Specified: With `preserve_rng_state="exclusive"`, regions that draw random numbers in several threads at the same time
draw in their replays what they drew in forward.
Observed: [0]: [0, 0, 0, 0, …] plain, [0.0959774, 0.283829, 0.192935, -0.321273, …] checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import concurrent.futures
import functools
import sys
import threading
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper
from torch.utils._pytree import tree_leaves

def main():
    inside, drawn, draws = {}, {}, {}

    def program(checkpoint, x):
        inside["flag"], drawn["flag"] = threading.Event(), threading.Event()
        draws.clear()

        def slow(x):
            inside["flag"].set()
            if now.phase == "forward":
                drawn["flag"].wait(0.3)  # in vain, if the other region has to wait
            return random(x, "slow")

        def quick(x):
            y = random(x, "quick")
            drawn["flag"].set()
            return y

        def random(x, name):
            noise = torch.rand_like(x)
            draws.setdefault(name, noise)
            return torch.multiply(torch.sin(torch.clone(x)), noise)

        def after(x):
            inside["flag"].wait(10)
            return checkpoint(quick, x)

        # The sine of zero: whatever is drawn, the values are zero, and the gradient is what was drawn.
        checkpoint = functools.partial(checkpoint, preserve_rng_state="exclusive")
        return in_threads(lambda: checkpoint(slow, x), lambda: after(x))

    def backward(pull):
        found = pull(outputs=[0])[0], pull(outputs=[1])[0]
        return [torch.subtract(gradient, draws[name]) for gradient, name in zip(found, ("slow", "quick"), strict=True)]

    run(program, torch.tensor([*[0.0] * 64], dtype=torch.float64), backward=backward)

def run(program, *primals, backward):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
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

def in_threads(*calls):
    """The results of calls at the same time, each in a thread of its own."""
    with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(lambda call: call(), calls))

def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()
    region.forward = function.__call__
    options = {name: kwargs.pop(name) for name in {"preserve_rng_state"} & set(kwargs)}
    return checkpoint_wrapper(region, checkpoint_impl=CheckpointImpl.REENTRANT, **options)(*args, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for i, y in enumerate(value) if outputs is None or i in outputs]
        ys = [y for y in ys if getattr(y, "requires_grad", False)]
        torch.autograd.backward(ys, [torch.ones_like(y) for y in ys], retain_graph=retain)
        found = [torch.zeros_like(x) if x.grad is None else x.grad for x in xs]
        for x in xs:
            x.grad = None
        return found
    return value, pull

def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]

now = types.SimpleNamespace()
plainly = lambda function, *args, preserve_rng_state=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
