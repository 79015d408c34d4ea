"""An accelerator made of Python, `--device=sim`: what random state and devices do to a region, seen without a GPU.

Its tensors compute on the CPU, say that they live on `sim`, and draw from generators of their own. Backward runs in a
thread of the device's own, as on a real one, and operands on different devices are refused. To torch this module is
`torch.sim`: it has what torch.cuda has for random state.

Its limits: autograd's engine has a thread for one Python device, so that backward runs in the calling thread while
there are tensors on `sim:1`; there are no generator objects of the device's own; autocast has no cache of casts.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import torch
import torch.utils.backend_registration as registration
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten
_with_aliasing: Any = return_and_correct_aliasing
_keys: Any = torch._C.DispatchKey
CPU = torch.device("cpu")

# -- torch.sim

_initialized = True
_current = 0
generators = [torch.Generator().manual_seed(index) for index in range(2)]


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return bool(globals().get("_initialized", True))


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return len(generators)


def current_device() -> int:
    return _current


@contextlib.contextmanager
def device(index: int | torch.device) -> Iterator[None]:
    """Makes a device the current one."""
    global _current
    before, _current = _current, _index(index)
    try:
        yield
    finally:
        _current = before


def synchronize(device: int | torch.device | None = None) -> None:
    """Nothing runs asynchronously."""


def manual_seed_all(seed: int) -> None:
    for generator in generators:
        generator.manual_seed(seed)


def get_rng_state(device: int | str | torch.device | None = None) -> torch.Tensor:
    return generators[_index(device)].get_state()


def set_rng_state(new_state: torch.Tensor, device: int | str | torch.device | None = None) -> None:
    generators[_index(device)].set_state(new_state)


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]


def _index(device: int | str | torch.device | None) -> int:
    if isinstance(device, int):
        return device
    index = None if device is None else torch.device(device).index
    return _current if index is None else index


# -- its tensors

#: Those that live elsewhere than on sim:0.
_elsewhere: weakref.WeakValueDictionary[int, torch.Tensor] = weakref.WeakValueDictionary()


class SimTensor(torch.Tensor):
    """`on_cpu`, a tensor, on a device of type sim."""

    on_cpu: torch.Tensor

    @staticmethod
    def __new__(cls, on_cpu: torch.Tensor, index: int = 0) -> SimTensor:
        made: SimTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            on_cpu.size(),
            on_cpu.stride(),
            on_cpu.storage_offset(),
            dtype=on_cpu.dtype,
            layout=on_cpu.layout,
            device=torch.device("sim", index),
        )
        made.on_cpu = on_cpu
        if index > 0:
            _elsewhere[id(made)] = made
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"SimTensor({self.on_cpu}, device='{self.device}')"

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return execute(func, args, kwargs or {})


def execute(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operation on the tensors behind, as the device would do it."""
    index = _device_of(func, args, kwargs)
    wanted = kwargs.get("device")
    real_args, real_kwargs = tree_map(_unwrap, (args, kwargs))
    if wanted is not None:
        real_kwargs["device"] = CPU
    with _drawing_from(generators[index]) if _is_random(func, args, kwargs) else contextlib.nullcontext():
        result = func(*real_args, **real_kwargs)
    if wanted is not None and torch.device(wanted).type == "cpu":
        return result
    result = tree_map(lambda t: SimTensor(t, index) if isinstance(t, torch.Tensor) else t, result)
    if func is aten.copy_.default and not isinstance(args[0], SimTensor):
        return args[0]
    return _with_aliasing(func, args, kwargs, result)


def _unwrap(leaf: Any) -> Any:
    return leaf.on_cpu if isinstance(leaf, SimTensor) else leaf


#: Operations that may have an operand on the CPU.
MIXED = {aten.copy_, aten._to_copy, aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_}


def _device_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """The index of the device that an operation runs on. Raises RuntimeError if its operands live on several."""
    if (wanted := kwargs.get("device")) is not None and torch.device(wanted).type == "sim":
        return _index(wanted)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    devices = {t.device for t in tensors if t.device.type == "sim" or t.dim() > 0}
    if len(devices) > 1 and getattr(func, "overloadpacket", None) not in MIXED:
        raise RuntimeError(f"{func}: its operands live on several devices, {', '.join(sorted(map(str, devices)))}")
    return next((t.get_device() for t in tensors if t.device.type == "sim"), _current)


def _is_random(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operation draws from the device's generator."""
    has_its_own = any(isinstance(leaf, torch.Generator) for leaf in (*args, *kwargs.values()))
    return torch.Tag.nondeterministic_seeded in func.tags and not has_its_own


@contextlib.contextmanager
def _drawing_from(generator: torch.Generator) -> Iterator[None]:
    """What draws on the CPU draws from `generator`."""
    outside = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(outside)


# -- what torch must be told


_pending = tuple(ctypes.c_void_p() for _ in range(3))  # an exception's type, value and traceback
_places = tuple(ctypes.byref(part) for part in _pending)
_fetch_exception = ctypes.pythonapi.PyErr_Fetch
_set_aside: list[BaseException] = []


class _Guard(torch._C._acc.DeviceGuard):
    """Answers the engine, also while an exception leaves a backward.

    torch asks for the type while the exception is still pending; no answer of Python's would be accepted then, and the
    process would be ended. So the exception is set aside, and _Engine raises it.
    """

    def type_(self) -> Any:
        _fetch_exception(*_places)  # before anything else: looking up an attribute may lose it, and a call would fail
        if _pending[0]:
            _keep_exception()
        return torch._C._autograd.DeviceType.PrivateUse1


def _keep_exception() -> None:
    ctypes.pythonapi.PyErr_NormalizeException(*_places)
    if _pending[2]:
        ctypes.pythonapi.PyException_SetTraceback(_pending[1], _pending[2])
    _set_aside.append(ctypes.cast(_pending[1], ctypes.py_object).value)
    for part in _pending:
        ctypes.pythonapi.Py_DecRef(part)
        part.value = None


class _Engine(torch._C._ImperativeEngine):
    """Raises what was set aside. The engine has no thread for sim:1, so that all is done in the calling one then."""

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with torch.autograd.set_multithreading_enabled(not _elsewhere):
                return super().run_backward(*args, **kwargs)
        except SystemError as error:
            found = _set_aside.pop() if _set_aside else error
        raise found  # with the cause and the context that it has


registration._setup_privateuseone_for_python_backend("sim", backend_module=sys.modules[__name__], device_guard=_Guard())
torch.autograd.Variable._execution_engine = _Engine()
_Library: Any = torch.library.Library
_kernels = _Library("aten", "IMPL")
_fallbacks = _Library("_", "IMPL")


def _kernel(func: Any) -> Any:
    """What runs where no operand is a SimTensor, or where torch itself fills a tensor that it has just made."""
    return lambda *args, **kwargs: execute(func, args, kwargs)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Any:
    return execute(aten.copy_.default, (target, source), {})


for _factory in (aten.empty.memory_format, aten.empty_strided.default):
    _kernels.impl(_factory, _kernel(_factory), "PrivateUse1")
_kernels.impl("_copy_from", _copy_from, "PrivateUse1")


def _reduced(func: Any) -> Any:
    """What autocast makes of an operation: floating-point operands in its dtype. There is no cache of casts."""

    def cast(leaf: Any) -> Any:
        is_wider = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.float32
        return leaf.to(torch.get_autocast_dtype("sim")) if is_wider else leaf

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_keys.AutocastPrivateUse1)):
            return func(*tree_map(cast, args), **tree_map(cast, kwargs))

    return kernel


for _matrix_product in (aten.mm, aten.addmm, aten.bmm, aten.matmul, aten.linear):
    _kernels.impl(_matrix_product.default, _reduced(_matrix_product.default), "AutocastPrivateUse1")
_fallbacks.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
