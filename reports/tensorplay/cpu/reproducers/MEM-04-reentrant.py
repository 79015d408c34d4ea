"""MEM-04 on tensorplay 1.0.0+gite11450d, reentrant: more is held than after the plain backward.

Specified: After backward, while the outputs are alive, no more is held than after the plain backward.
Observed: assert 104000 <= 8000
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
    def program(checkpoint, x):
        x = tensorplay.cos(x)
        for _ in range(3):
            x = checkpoint(lambda x: tensorplay.exp(tensorplay.sin(tensorplay.cos(tensorplay.clone(x)))), x)
        return x

    seen = run(program, tensorplay.linspace(0.1, 0.9, 1000, dtype=tensorplay.float64))

    assert seen.held.after_backward <= seen.plain.held.after_backward, "more is held than after the plain backward"

def run(program, *primals):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals)
    first = now
    observe(program, CHECKPOINTED, primals)
    now.plain = first
    return now

def observe(program, checkpoint, primals):
    global now
    now = types.SimpleNamespace(phase="forward", error=None, checkpoint=checkpoint)
    now.ledger, now.held = Ledger(), types.SimpleNamespace()
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    now.phase = "backward"
    gradients = pull()
    del pull, gradients
    now.held.after_backward = now.ledger.held()
    now.ledger.end()

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull():
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        tensorplay.autograd.backward(ys, [tensorplay.ones_like(y) for y in ys])
        return [tensorplay.zeros_like(x) if x.grad is None else x.grad for x in xs]
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
    print("expected: seen.held.after_backward <= seen.plain.held.after_backward\nobserved:", error)
    sys.exit(1 if str(error).startswith("more is held than after the plain backward") else 2)
print("as specified")
