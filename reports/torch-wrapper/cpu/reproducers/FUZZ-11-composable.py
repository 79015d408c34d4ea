"""FUZZ-11 on torch-wrapper 2.13.0+cpu, composable: AttributeError in backward.

Specified: However backward goes through any program, whatever options its regions have, the gradients are those of the
plain run: twice, over one output and then another, for one input and then all, with draws before and after.
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
    def program(checkpoint, a, b, c):
        v1 = torch.nn.functional.dropout(c, 0.5)
        v2 = astype(b, "float64")
        def region3(v4, v5, v6):
            v6 = v6[0]
            v7 = torch.clone(v6)
            v8 = torch.sin(v7)
            return v8, v4
        with early_stop_of(checkpoint, False):
            v9, v10 = checkpoint(region3, v2, v2, [v2], early_stop=True)
        v11 = torch.add(v2, v10)
        v12 = torch.lt(v11, v11)
        v13 = torch.sigmoid(v9)
        v14 = torch.reshape(a, (4,))
        def region15(v16, v17, v18):
            v18 = v18[0]
            v19 = torch.clone(v18)
            def region20(n21):
                v22 = torch.clone(v19)
                v23 = torch.multiply(v18, torch.rand_like(v18))
                v24 = torch.unsqueeze(v23, 0)
                v25 = torch.rand_like(v11)
                return [v24, v25]
            with early_stop_of(checkpoint, False):
                [v26, v27] = checkpoint(region20, 2)
            return [v26, v27]
        with early_stop_of(checkpoint, False):
            [v28, v29] = checkpoint(region15, v12, v13, [v14], early_stop=True)
        return v28, v14, v1, v29,

    def backward(checkpoint, pull, a, b, c):
        return pull(inputs=[0], retain=True), pull()

    primals = (
        torch.tensor([-0.7, -0.17, 0.37, 0.9], dtype=torch.float32).reshape(2, 2),
        torch.tensor([-0.65, 0.95], dtype=torch.float32).reshape(2, 1),
        torch.tensor([-0.6, 1.0], dtype=torch.float64),
    )
    run(program, *primals, backward=lambda pull: backward(now.checkpoint, pull, *primals))

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
    options = {name: kwargs.pop(name) for name in {"early_stop"} & set(kwargs)}
    return composable(region, **options)(*args, **kwargs)

def early_stop_of(checkpoint, value):
    return contextlib.nullcontext() if checkpoint is plainly else torch.utils.checkpoint.set_checkpoint_early_stop(
        value
    )

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        ones = [torch.ones_like(y) for y in ys]
        return torch.autograd.grad(ys, xs, ones, retain_graph=retain, materialize_grads=True)
    return value, pull

def astype(x, dtype):
    return x.to(getattr(torch, dtype))

plainly = lambda function, *args, early_stop=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except BaseException as error:
    found = f"{type(error).__name__} in {now.phase}: {error}"
    print("expected: no exception\nobserved:", found)
    sys.exit(1 if found.startswith("AttributeError in backward:") and now.checkpoint is CHECKPOINTED else 2)
print("as specified")
