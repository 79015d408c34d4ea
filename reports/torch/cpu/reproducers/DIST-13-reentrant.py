"""DIST-13 on torch 2.13.0+cpu, reentrant: a wrong gradient.

Specified: A replica averages the whole gradient of a parameter that several regions read, its graph not being
announced.
Observed: [0]: [-0.731218, 0.0294272, -0.7676, -0.305711, …] plain, [-0.64151, 0.156279, -0.705194, -0.272159, …]
checkpointed
Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.
"""
import multiprocessing
import sys
import tempfile
sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault
import numpy as np
import torch.utils.checkpoint
from torch.utils._pytree import tree_leaves

def main():
    def body(rank):
        kept = []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    for _ in range(3):
                        x = checkpoint(lambda x: torch.sin(super(Model, self).forward(torch.clone(x))), x)
                    return x

            replica = torch.nn.parallel.DistributedDataParallel(Model(4, 4))
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            y.sum().backward()
            return [p.grad for p in replica.parameters()]

        run(
            program, torch.linspace(0.1, 0.9, (rank + 1) * 4, dtype=torch.float32).reshape(rank + 1, 4),
            backward=backward
        )

    in_processes(2, body)

def run(program, *primals, backward):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]
        assert all(are_equal), f"{label}: {os} instead of {es}"

def results(program, checkpoint, primals, *, backward):
    torch.manual_seed(20180101)
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
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

def in_processes(count, body):
    """What the body returns in each of several processes that talk to each other."""
    fork = multiprocessing.get_context("fork")
    pipes = [fork.Pipe() for _ in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        for rank, (_, theirs) in enumerate(pipes):
            fork.Process(target=play, args=(rank, count, folder, body, theirs)).start()
        answers = [ours.recv() for ours, _ in pipes]
    for error in sorted((a for a in answers if isinstance(a, Exception)), key=lambda e: type(e) is not AssertionError):
        raise error
    return answers

def play(rank, count, folder, body, pipe):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=count)
    try:
        pipe.send(body(rank))
    except Exception as error:
        pipe.send(AssertionError(str(error)) if isinstance(error, AssertionError) else RuntimeError(repr(error)))
    torch.distributed.destroy_process_group()

plainly = lambda function, *args, **kwargs: function(*args, **kwargs)
CHECKPOINTED = plainly if "--plain" in sys.argv else checkpoint
try:
    main()
except AssertionError as error:
    print("expected: the value and the gradients of the plain call\nobserved:", error)
    sys.exit(1 if str(error).startswith("gradient:") else 2)
print("as specified")
