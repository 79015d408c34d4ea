"""MEM-03 on tensorplay 1.0.0+gite11450d, non-reentrant: recomputed values are held after backward.

Specified: After a backward that keeps the graph, no more is held than before it, apart from the gradients.
Observed: assert 80064 <= (8064 + 8000)
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import gc
import sys
import types
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.profiler import profile
from tensorplay.utils._pytree import tree_leaves

def main():
    size = 8 * 1000

    def program(checkpoint, x):
        def region(x):
            x = tensorplay.clone(x)
            for _ in range(4):
                x = tensorplay.exp(tensorplay.sin(tensorplay.cos(x)))
            return tensorplay.sum(x)

        return checkpoint(region, x)

    def backward(pull):
        pull(retain=True)
        return pull(retain=True)

    seen = run(program, tensorplay.linspace(0.1, 0.9, 1000, dtype=tensorplay.float64), backward=backward)

    assert seen.held.after_backward <= seen.held.after_forward + size, "recomputed values are held after backward"

def run(program, *primals, backward):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals, backward=backward)
    observe(program, CHECKPOINTED, primals, backward=backward)
    return now

def observe(program, checkpoint, primals, *, backward):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    now.ledger, now.held = Ledger(), types.SimpleNamespace()
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.held.after_forward = now.ledger.held()
    now.phase = "backward"
    gradients = backward(pull)
    del pull, gradients
    now.held.after_backward = now.ledger.held()
    now.ledger.end()

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

class Ledger:
    """The allocator's book, which the profiler shows when it stops."""
    def __init__(self):
        self.alive = {}
        self.begin()
    def begin(self):
        self.session = profile(profile_memory=True)
        self.session.__enter__()
    def end(self):
        self.session.__exit__(None, None, None)
        for _, address, size, is_new, *_ in sorted(self.session.mem_events, key=lambda event: event[0]):
            self.alive[address] = size if is_new else 0
    def held(self):
        gc.collect()
        self.end()
        self.begin()
        state = tensorplay.get_rng_state().untyped_storage().nbytes()  # a copy of it is no array of the program
        return sum(size for size in self.alive.values() if size != state)

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: seen.held.after_backward <= seen.held.after_forward + size\nobserved:", error)
    sys.exit(1 if str(error).startswith("recomputed values are held after backward") else 2)
print("as specified")
