"""PyTorch as a host, for every checkpointer over torch tensors.

Read top to bottom: the probe, the operations, the bytes, the host.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import gc
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ckptspec.adapters import words
from ckptspec.conformance.backend import Array, Fact, Host, HostError, Ops, Pullback, Words

_executed: dict[int, Callable[[], None]] = {}
"""Who is told of an execution: an operator's arguments can be numbers, not functions."""


_LIBRARY: Any = torch.library.Library("ckptspec", "DEF")  # type: ignore[no-untyped-call]
"""Where the probe is defined; `torch.library.custom_op` would import the compiler, which takes a second."""


def _execute(x: torch.Tensor, who: int) -> torch.Tensor:
    _executed[who]()
    return x.clone()


_LIBRARY.define("probe(Tensor x, int who) -> Tensor")
_LIBRARY.impl("probe", _execute, "CompositeExplicitAutograd")
_PROBE = "ckptspec::probe"
_probe = torch.ops.ckptspec.probe.default
torch.library.register_autograd(_PROBE, lambda ctx, gradient: (gradient, None), lib=_LIBRARY)
torch.library.register_vmap(_PROBE, lambda info, dims, x, who: (_probe(x, who), dims[0]), lib=_LIBRARY)
torch.library.register_fake(_PROBE, lambda x, who: torch.empty_like(x), lib=_LIBRARY)


@functools.cache
def _custom(forward: Callable[[Array], Array], backward: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
    """A function with a backward of its own, which is given the gradient and the input."""

    class Custom(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Array) -> Array:
            context.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(context: Any, gradient: Array) -> Array:
            return backward(gradient, *context.saved_tensors)

    function: Callable[[Array], Array] = Custom.apply
    return function


OPERATIONS: dict[str, Callable[..., Any]] = {
    name: getattr(torch, name)
    for name in (
        "abs add broadcast_to concat cos divide exp log matmul maximum mean multiply negative ones_like relu reshape"
        " sigmoid sin sqrt square stack subtract sum tanh where zeros_like"
    ).split()
}
OPERATIONS |= {
    "astype": lambda x, dtype: x.to(getattr(torch, dtype)),
    "dropout": lambda x, p: torch.nn.functional.dropout(x, p),
    "uniform_like": torch.rand_like,
    "permute_dims": torch.permute,
    "expand_dims": torch.unsqueeze,
    # Saves a noise buffer that its kernel fills afterwards (pytorch/pytorch#193671).
    "noisy_relu": lambda x: torch.nn.functional.rrelu(x, training=True),
    "add_": lambda x, y: x.add_(y),
    "multiply_": lambda x, y: x.mul_(y),
    "less": torch.lt,
    "stop_gradient": torch.detach,
    "no_grad": torch.no_grad,
    "autocast": lambda x: torch.autocast(x.device.type, torch.float16, cache_enabled=False),
    "custom": _custom,
}

#: Operation names -> the operators that a policy sees.
OPERATORS: dict[str, Any] = {
    name: getattr(getattr(torch.ops.aten, aten), overload)
    for name, aten, overload in (
        ("matmul", "mm", "default"),
        ("sin", "sin", "default"),
        ("cos", "cos", "default"),
        ("exp", "exp", "default"),
        ("tanh", "tanh", "default"),
        ("multiply", "mul", "Tensor"),
        ("add", "add", "Tensor"),
        ("uniform_like", "rand_like", "default"),
        ("reshape", "view", "default"),
    )
} | {"probe": _probe}


class _Storages(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers, weakly, every storage that comes out of an operation."""

    is_paused = False

    def __init__(self, settle: Callable[[], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.settle = settle
        self.made: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in () if self.is_paused else tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                storage = leaf.untyped_storage()
                self.made[storage._cdata] = (StorageWeakRef(storage), storage.nbytes())  # type: ignore[no-untyped-call]
        return out

    def held(self) -> int:
        self.settle()
        gc.collect()
        return sum(size for reference, size in self.made.values() if not reference.expired())


class TorchHost(Host):
    """`uses_backward`: gradients come from `.backward()`, which reentrant forms need, instead of `autograd.grad`."""

    name = "torch"
    version = torch.__version__
    torch = torch
    ops = Ops("torch", OPERATIONS)
    imports = ("torch._dynamo", "torch.distributed.fsdp")  # the first takes seconds, and distributed modules need it
    facts = frozenset(Fact) - {Fact.KEYED_RANDOM, Fact.ACCELERATOR, Fact.SEVERAL_ACCELERATORS}

    def __init__(self, device: str = "cpu", *, uses_backward: bool = False) -> None:
        if device not in ("cpu", "cuda", "sim"):
            raise HostError(f"torch has no device {device!r} here; there are: cpu, cuda, sim")
        if device == "cuda" and not torch.cuda.is_available():
            raise HostError("--device=cuda was asked for, but torch.cuda.is_available() is False")
        if device == "sim":
            importlib.import_module("ckptspec.adapters.hosts.simulated_accelerator")  # makes the device
            self.facts -= {Fact.COMPILER}  # which doesn't know it
        self.device = torch.device(device) if device == "cpu" else torch.device(device, 0)
        if device != "cpu":
            self.facts = self.facts - {Fact.PROCESSES} | {Fact.ACCELERATOR}  # they talk through gloo, and CPU memory
        if device == "sim" or (device == "cuda" and torch.cuda.device_count() > 1):
            self.facts |= {Fact.SEVERAL_ACCELERATORS}
        self.uses_backward = uses_backward
        if device != "sim":  # which is nothing that everybody has
            self.words = Words((words.TORCH,), {"DEVICE": "" if device == "cpu" else f'device="{device}"'})

    def array(self, values: np.ndarray[Any, Any]) -> Array:
        return torch.tensor(values, device=self.device)

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        detached = array.detach().cpu()
        if detached.dtype is torch.bfloat16:
            detached = detached.float()
        return np.array(detached.numpy())

    def is_array(self, value: object) -> bool:
        return isinstance(value, torch.Tensor)

    def ones_like(self, array: Array) -> Array:
        return torch.ones_like(array)

    def vjp(self, fn: Callable[..., tuple[Array, ...]], *primals: Array) -> tuple[tuple[Array, ...], Pullback]:
        inputs = [p.detach().clone().requires_grad_(p.is_floating_point()) for p in primals]
        outputs = fn(*inputs)
        alone = threading.RLock()  # `.backward()` writes to the inputs

        def pullback(
            cotangents: Sequence[Array | None], retain: bool, chosen: Sequence[int] = range(len(inputs))
        ) -> list[Array]:
            pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if c is not None and y.requires_grad]
            if not pairs:
                raise RuntimeError("no output of the program requires a gradient")
            ys, cs = zip(*pairs, strict=True)
            wanted = [x for i, x in enumerate(inputs) if i in chosen and x.requires_grad]
            if self.uses_backward:
                with alone:
                    for x in wanted:
                        x.grad = None
                    torch.autograd.backward(ys, cs, retain_graph=retain)
                    found: Sequence[Any] = [x.grad for x in wanted]
            else:
                found = torch.autograd.grad(ys, wanted, cs, retain_graph=retain, allow_unused=True)
            return [torch.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]

        return outputs, pullback

    def probe(self, x: Array, executed: Callable[[], None]) -> Array:
        who = id(getattr(executed, "__self__", executed))
        _executed[who] = executed
        return _probe(x, who)

    def prober(self, executed: Callable[[], None]) -> Callable[[Array], Array]:
        # What is bound here is a number before a compiler sees it.
        who = id(executed)
        _executed[who] = executed
        return lambda x: _probe(x, who)

    def restore(self) -> None:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.set_default_device(None)
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
        while torch._C._len_torch_dispatch_stack():
            torch._C._pop_torch_dispatch_stack(None)
        while torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
            torch._C._autograd._pop_saved_tensors_default_hooks()

    def settle(self) -> None:
        if self.device.type == "cpu":
            return
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        # The device's thread may still be releasing what a backward used; it has, when it takes another task.
        _Storages.is_paused = True
        try:
            torch.zeros((), device=self.device, requires_grad=True).backward()  # type: ignore[no-untyped-call]
        finally:
            _Storages.is_paused = False

    def seed(self, seed: int) -> None:
        if self.device.type == "cpu":
            torch.default_generator.manual_seed(
                seed
            )  # `torch.manual_seed` keeps the stack as text, for each accelerator
        else:
            torch.manual_seed(seed)

    def gradient(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        def gradient(x: Array) -> Array:
            if not x.requires_grad:
                x = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
            return found

        return gradient

    def jvp(self, fn: Callable[[Array], Array], x: Array, tangent: Array) -> tuple[Array, Array]:
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, tangent)  # type: ignore[no-untyped-call]
            value, derivative = forward_ad.unpack_dual(fn(dual))  # type: ignore[no-untyped-call]
            return value.detach(), torch.zeros_like(value) if derivative is None else derivative.detach()

    def batched(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        return torch.func.vmap(fn)

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        torch._dynamo.reset()  # else functions of one code, compiled before, count towards a limit
        compiled: Callable[..., Any] = torch.compile(fn, backend="aot_eager")  # which needs no C++ compiler
        return compiled

    @contextlib.contextmanager
    def joined(self, rank: int, count: int, folder: str) -> Iterator[None]:
        store, limit = f"file://{folder}/store", datetime.timedelta(seconds=20)
        torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=count, timeout=limit)
        try:
            yield
        finally:
            torch.distributed.destroy_process_group()

    def needs_gradient(self, array: Array) -> bool:
        return bool(array.requires_grad)

    def stop_gradient(self, array: Array) -> Array:
        return array.detach()

    @contextlib.contextmanager
    def tracking(self) -> Iterator[Callable[[], int]]:
        with _Storages(self.settle) as storages:
            yield storages.held

    @contextlib.contextmanager
    def deterministic(self) -> Iterator[None]:
        if self.device.type != "cuda":
            yield
            return
        settings = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = settings

    def environment(self) -> dict[str, str]:
        return {"torch": torch.__version__, "device": str(self.device)}
