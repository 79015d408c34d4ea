"""ERR-11 on tensorplay 1.0.0+gite11450d, non-reentrant: the process ends with SIGABRT.

Specified: After a replay failed for a passing reason, another backward over the same graph works.
Observed: the process ended with SIGABRT
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import subprocess
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    failed, found = [], []

    def program(checkpoint, x):
        failed.clear()

        def region(x):
            y = tensorplay.sin(tensorplay.clone(x))
            if now.phase == "backward" and not failed:
                failed.append(True)
                raise KeyError("the first replay fails")
            return tensorplay.exp(y)

        return checkpoint(region, x)

    def backward(pull):
        try:
            pull(retain=True)
        except KeyError:
            found.append(True)
        return pull()

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64), backward=backward)

def run(program, *primals, backward):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals, *, backward):
    tensorplay.manual_seed(20180101)
    now.phase, now.checkpoint = "forward", checkpoint
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"
    return value, arrays(backward(pull))

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        ones = [tensorplay.ones_like(y) for y in ys]
        found = tensorplay.autograd.grad(ys, xs, ones, retain_graph=retain, allow_unused=True)
        return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(xs, found)]
    return value, pull

def arrays(structure):
    return [
        x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, tensorplay.Tensor)
    ]

now = types.SimpleNamespace()
plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
if "--child" in sys.argv:
    main()
    sys.exit()
child = subprocess.run([sys.executable, *sys.argv, "--child"])
print("expected: exit code 0\nobserved:", child.returncode)
sys.exit({0: 0, -6: 1}.get(child.returncode, 2))
