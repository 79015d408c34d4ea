"""RETAIN-02 on tensorplay 1.0.0+gite11450d, reentrant: the second backward does not end as the plain one does.

Specified: Where the graph was not kept, a second backward fails, with the plain run's type of error, if the plain one
does.
Observed: assert <class 'RuntimeError'> == None
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import sys
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import tensorplay.utils.checkpoint
from tensorplay.utils._pytree import tree_leaves

def main():
    ends = []

    def program(checkpoint, x):
        return checkpoint(lambda x: tensorplay.exp(tensorplay.sin(tensorplay.clone(x))), x)

    def backward(pull):
        first = pull()
        try:
            pull()
        except Exception as error:
            ends.append(type(error))
        else:
            ends.append(None)
        return first

    run(program, tensorplay.linspace(0.1, 0.9, 4, dtype=tensorplay.float64), backward=backward)

    assert ends[-1] == ends[0], f"the second backward does not end as the plain one does: {ends[-1]}"

def run(program, *primals, backward):
    """Run the program plain, twice, then checkpointed; what was seen in the last run."""
    for _ in range(2):
        observe(program, plainly, primals, backward=backward)
    observe(program, CHECKPOINTED, primals, backward=backward)

def observe(program, checkpoint, primals, *, backward):
    tensorplay.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    backward(pull)

def checkpoint(function, *args, **kwargs):
    return tensorplay.utils.checkpoint.checkpoint(function, *args, use_reentrant=True, **kwargs)

def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]
    value = tree_leaves(function(*xs))
    def pull(outputs=None, retain=False):
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        tensorplay.autograd.backward(ys, [tensorplay.ones_like(y) for y in ys], retain_graph=retain)
        found = [tensorplay.zeros_like(x) if x.grad is None else x.grad for x in xs]
        for x in xs:
            x.grad = None
        return found
    return value, pull

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: ends[-1] == ends[0]\nobserved:", error)
    sys.exit(1 if str(error).startswith("the second backward does not end as the plain one does") else 2)
print("as specified")
