"""How a stand-alone program says in torch's words what a clause says; the form is that of conformance/reproducer.

Read as text, of which a program takes what it needs; never imported.
"""

import contextlib
import functools
import gc
import multiprocessing
import tempfile

import torch
import torch.utils.checkpoint
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

# An adapter says what these are.
API = torch.utils.checkpoint
FORM = {"use_reentrant": False}
DEVICE = {}


class array:
    given = torch.tensor(VALUES, dtype=torch.DTYPE, **DEVICE)
    spaced = torch.linspace(0.1, 0.9, SIZE, dtype=torch.DTYPE, **DEVICE)


class ops:
    anything_else = torch
    astype = astype
    dropout = torch.nn.functional.dropout
    uniform_like = torch.rand_like
    permute_dims = torch.permute
    expand_dims = torch.unsqueeze
    noisy_relu = noisy_relu
    add_ = torch.Tensor.add_
    less = torch.lt
    stop_gradient = torch.detach
    autocast = autocast
    custom = custom
    multiply_ = torch.Tensor.mul_


class under_test:
    torch = torch
    api = API
    identity = torch.clone
    seed = torch.manual_seed
    batched = torch.func.vmap
    needs_gradient = needs_gradient
    stop_gradient = torch.Tensor.detach
    forward_derivative = forward_derivative
    processes = in_processes


class handles:
    through = through
    decorator = decorator_of
    sequential = in_segments
    group = group_of
    early_stop = early_stop_of


class using:
    save = "context_fn", saving
    policy = "context_fn", deciding


seed = torch.manual_seed


def checkpoint(function, *args, **kwargs):
    return API.checkpoint(function, *args, **FORM, **kwargs)


def through(checkpoint, entry):
    return checkpoint if checkpoint is plainly else entry


def decorator_of(checkpoint, **options):
    return (lambda function: function) if checkpoint is plainly else API.checkpoint(**FORM, **options)


def in_segments(checkpoint, functions, segments, *inputs, **options):
    if checkpoint is plainly:
        return functools.reduce(lambda value, function: function(value), functions, *inputs)
    return API.checkpoint_sequential(functions, segments, *inputs, **FORM, **options)


def group_of(checkpoint):
    return contextlib.nullcontext() if checkpoint is plainly else API.GraphExecGroup()


def early_stop_of(checkpoint, value):
    return contextlib.nullcontext() if checkpoint is plainly else API.set_checkpoint_early_stop(value)


def vjp(function, *primals):  # unless backward=
    xs = [x.clone().requires_grad_() for x in primals]  # unless .int64
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in primals]  # if .int64
    every, xs = xs, [x for x in xs if x.requires_grad]  # if .int64
    value = tree_leaves(function(*xs))  # unless .int64
    value = tree_leaves(function(*every))  # if .int64
    ys = [y for y in value if getattr(y, "requires_grad", False)]
    return value, lambda: torch.autograd.grad(ys, xs, [torch.ones_like(y) for y in ys], materialize_grads=True)


def vjp(function, *primals):  # if backward=
    xs = [x.clone().requires_grad_() for x in primals]  # unless .int64
    xs = [x.clone().requires_grad_(x.is_floating_point()) for x in primals]  # if .int64
    every, xs = xs, [x for x in xs if x.requires_grad]  # if .int64
    value = tree_leaves(function(*xs))  # unless .int64
    value = tree_leaves(function(*every))  # if .int64

    def pull(outputs=None, inputs=None, retain=False):
        wanted = [x for i, x in enumerate(xs) if inputs is None or i in inputs]  # if inputs=
        ys = [y for i, y in enumerate(value) if outputs is None or i in outputs]  # if outputs=
        ys = [y for y in ys if getattr(y, "requires_grad", False)]  # if outputs=
        ys = [y for y in value if getattr(y, "requires_grad", False)]  # unless outputs=
        ones = [torch.ones_like(y) for y in ys]
        return torch.autograd.grad(ys, wanted, ones, retain_graph=retain, materialize_grads=True)  # if inputs=
        return torch.autograd.grad(ys, xs, ones, retain_graph=retain, materialize_grads=True)  # unless inputs=

    return value, pull


def arrays(structure):
    return [x.detach().double().cpu().numpy().copy() for x in tree_leaves(structure) if isinstance(x, torch.Tensor)]


def to_numpy(x):
    return x.detach().cpu().numpy().copy()


class Probe:
    """A function that returns what it is given, and counts how often it is executed."""

    def __init__(self, name=""):
        self.name = name
        self.executions = 0  # if .executions

    def __call__(self, x):
        self.executions += 1  # if .executions
        getattr(now, now.phase)[self] += 1
        return x.clone()


class ProbeOperator:
    """An operator that returns what it is given, and counts how often it is executed."""

    every = []

    def __init__(self, name=""):
        self.every.append(self)
        self.executions = 0  # if .executions

    def __call__(self, x):
        return probe_operator(x, self.every.index(self))


@torch.library.custom_op("reproducer::probe", mutates_args=())
def probe_operator(x: torch.Tensor, number: int) -> torch.Tensor:
    ProbeOperator.every[number].executions += 1  # if .executions
    getattr(now, now.phase)[ProbeOperator.every[number]] += 1
    return x.clone()


probe_operator.register_autograd(lambda ctx, gradient: (gradient, None))
probe_operator.register_fake(lambda x, number: torch.empty_like(x))


def gradient_of(function):
    """The gradient of the sum of what the function returns, itself differentiable."""

    def gradient(x):
        x = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x, create_graph=True)[0]

    return gradient


def compiled_function(function):
    return torch.compile(function, backend="aot_eager") if now.checkpoint is CHECKPOINTED else function


def forward_derivative(function, x, tangent):
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, tangent)
        value, derivative = torch.autograd.forward_ad.unpack_dual(function(dual))
        return value.detach(), torch.zeros_like(value) if derivative is None else derivative.detach()


def needs_gradient(x):
    return x.requires_grad


def astype(x, dtype):
    return x.to(getattr(torch, dtype))


def noisy_relu(x):
    return torch.nn.functional.rrelu(x, training=True)


def autocast(x):
    return torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False)


def custom(function, derivative):
    """A function with a backward of its own."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            context.save_for_backward(x)
            return function(x)

        @staticmethod
        def backward(context, gradient):
            return derivative(gradient, *context.saved_tensors)

    return Custom.apply


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


OPERATORS = {
    "matmul": torch.ops.aten.mm.default,
    "sin": torch.ops.aten.sin.default,
    "cos": torch.ops.aten.cos.default,
    "exp": torch.ops.aten.exp.default,
    "tanh": torch.ops.aten.tanh.default,
    "multiply": torch.ops.aten.mul.Tensor,
    "add": torch.ops.aten.add.Tensor,
    "uniform_like": torch.ops.aten.rand_like.default,
    "reshape": torch.ops.aten.view.default,
    "probe": torch.ops.reproducer.probe.default,
}


def saving(names):
    """Contexts that save the results of these operations."""
    return lambda: API.create_selective_checkpoint_contexts([OPERATORS[name] for name in names])


def deciding(policy):
    """Contexts that save what the policy says."""
    names = {operator: name for name, operator in OPERATORS.items()}

    def decide(context, operator, *args, **kwargs):
        answer = policy(names.get(operator))
        name = answer if isinstance(answer, str) else "MUST_SAVE" if answer else "PREFER_RECOMPUTE"
        return getattr(API.CheckpointPolicy, name)

    return lambda: API.create_selective_checkpoint_contexts(decide)


class Ledger(TorchDispatchMode):
    """Remembers, weakly, every storage that an operation makes."""

    def __init__(self):
        super().__init__()
        self.made = {}
        self.__enter__()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **kwargs or {})
        storages = [x.untyped_storage() for x in tree_leaves(out) if isinstance(x, torch.Tensor)]
        self.made |= {s._cdata: (StorageWeakRef(s), s.nbytes()) for s in storages}
        return out

    def held(self):
        gc.collect()
        return sum(size for reference, size in self.made.values() if not reference.expired())

    def end(self):
        self.__exit__(None, None, None)
