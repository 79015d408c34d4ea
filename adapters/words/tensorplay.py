"""TensorPlay's words where they are not torch's; the name `torch` is to be read as `tensorplay`."""

import gc

import torch
from torch.overrides import wrap_tensorplay_function
from torch.profiler import profile
from torch.utils._pytree import tree_leaves


class ops:
    broadcast_to = broadcast_to
    sum = sum_along  # if axis=
    mean = mean_along  # if axis=


def broadcast_to(x, shape):
    return x.expand(*shape)


def sum_along(x, axis=None):
    return torch.sum(x) if axis is None else torch.sum(x, dim=axis)


def mean_along(x, axis=None):
    return torch.mean(x) if axis is None else torch.mean(x, dim=axis)


def vjp(function, *primals):
    xs = [x.clone().requires_grad_() for x in primals]  # unless .int64
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in primals]  # if .int64
    every, xs = xs, [x for x in xs if x.requires_grad]  # if .int64
    value = tree_leaves(function(*xs))  # unless .int64
    value = tree_leaves(function(*every))  # if .int64

    def pull(outputs=None, inputs=None, retain=False):  # if backward=
        wanted = [x for i, x in enumerate(xs) if inputs is None or i in inputs]  # if inputs=
        wanted = xs  # unless inputs=
        ys = [y for i, y in enumerate(value) if outputs is None or i in outputs]  # if outputs=
        ys = [y for y in ys if getattr(y, "requires_grad", False)]  # if outputs=
        ys = [y for y in value if getattr(y, "requires_grad", False)]  # unless outputs=
        ones = [torch.ones_like(y) for y in ys]
        found = torch.autograd.grad(ys, wanted, ones, retain_graph=retain, allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found)]

    def pull():  # unless backward=
        ys = [y for y in value if getattr(y, "requires_grad", False)]
        found = torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], allow_unused=True)
        return [torch.zeros_like(x) if g is None else g for x, g in zip(xs, found)]

    return value, pull


class ProbeOperator:
    """An operation that returns what it is given, and counts how often it is executed."""

    def __init__(self, name=""):
        self.name = name
        self.executions = 0  # if .executions

    def __call__(self, x):
        return probe_operator(x, self)


def _execute(x, probe):
    probe.executions += 1  # if .executions
    getattr(now, now.phase)[probe] += 1
    return x.clone()


probe_operator = wrap_tensorplay_function(lambda x, probe: (x,))(_execute)

OPERATORS = {
    "matmul": torch.matmul,
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "add": torch.add,
    "reshape": torch.reshape,
    "multiply": torch.Tensor.multiply,
    "uniform_like": torch.rand_like,
    "probe": probe_operator,
}


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
        state = torch.get_rng_state().untyped_storage().nbytes()  # a copy of it is no array of the program
        return sum(size for size in self.alive.values() if size != state)
