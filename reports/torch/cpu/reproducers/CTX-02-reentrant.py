"""CTX-02 on torch 2.13.0+cpu, reentrant: the replay had another default device.

Specified: The reentrant form, too, brings the default device of forward back for its replay.
Observed: assert ['meta', 'cpu'] == ['meta', 'meta'] At index 1 diff: 'cpu' != 'meta' Use -v to get more diff
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    devices = []

    def program(checkpoint, x):
        devices.clear()

        def region(x):
            y = torch.sin(torch.clone(x))
            devices.append(torch.empty(1).device.type)
            return torch.exp(y)

        with torch.device("meta"):
            return checkpoint(region, x)

    run(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert devices == ["meta", "meta"], f"the replay had another default device: {devices}"

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
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

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
    print("expected: devices == ['meta', 'meta']\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("the replay had another default device"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("the replay had another default device") else 2)
print("as specified")
