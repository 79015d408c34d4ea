"""SEL-17 on torch 2.13.0+cpu, non-reentrant, 7: an answer that means nothing was accepted.

Specified: A policy function's answer that means nothing is an error, not silently one of the policies.
Observed: assert None is not None
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def program(checkpoint, x):
        contexts = lambda: torch.utils.checkpoint.create_selective_checkpoint_contexts(lambda *args, **kwargs: 7)
        return checkpoint(lambda x: torch.sin(torch.exp(torch.clone(x))), x, context_fn=contexts)

    seen = attempt(program, torch.linspace(0.1, 0.9, 4, dtype=torch.float64))

    assert seen.error is not None, f"an answer that means nothing was accepted: {seen.error}"

def attempt(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run, also its exception."""
    for _ in range(2):
        observe(program, plainly, primals)
    try:
        observe(program, CHECKPOINTED, primals)
    except BaseException as error:
        now.error = error
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    pull()

def checkpoint(function, *args, **kwargs):
    return torch.utils.checkpoint.checkpoint(function, *args, use_reentrant=False, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)

plainly = lambda function, *args, context_fn=None, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: seen.error is not None\nobserved:", error)
    if "--plain" in sys.argv and str(error).startswith("an answer that means nothing was accepted"):
        sys.exit(print("This is asked of a checkpoint, not of a plain call."))
    sys.exit(1 if str(error).startswith("an answer that means nothing was accepted") else 2)
print("as specified")
