"""Accelerators: which ones a region may draw random numbers on, and the state of their generators.

A region covers every device in use of the default accelerator, and of every accelerator that an argument lives on, so
that tensors it captures, and devices it moves to inside, are covered as well (DEV-01 to DEV-04, LB-18). On CUDA a
state is 16 bytes read on the host: about 3 microseconds a device. An accelerator takes part if its module,
`torch.<type>`, has the functions that CUDA's has: see REQUIRED.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ckptspec.reference import engine
from ckptspec.reference.arguments import tensors_in
from ckptspec.reference.errors import DeviceInitializedInsideError, UnsupportedAcceleratorError

REQUIRED = ("get_rng_state", "set_rng_state", "device", "device_count")


class DefaultDeviceType:
    """The device type whose state is kept although no argument lives on it: an accelerator if there is one, else cpu.

    Source: torch.utils.checkpoint.DefaultDeviceType, which keeps its first answer; this asks each time (DEV-08).
    """

    _chosen: str | None = None

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Choose the type, e.g. "cuda", for the whole process."""
        DefaultDeviceType._chosen = device

    @staticmethod
    def get_device_type() -> str:
        """The chosen type; else that of the current accelerator; else "cpu"."""
        if DefaultDeviceType._chosen is not None:
            return DefaultDeviceType._chosen
        accelerator = torch.accelerator.current_accelerator()
        return accelerator.type if accelerator is not None else "cpu"


class DeviceState(NamedTuple):
    """The generator of one device as it was: `state` is what its module's get_rng_state returned."""

    module: Any
    device: int
    state: Tensor

    def swap(self) -> DeviceState:
        """Install the state; returns the one found there."""
        with self.module.device(self.device):
            found = self.module.get_rng_state()
            self.module.set_rng_state(self.state)
        return DeviceState(self.module, self.device, found)


def kinds(tensors: Iterable[Tensor]) -> list[str]:
    """The types of device, "cpu" and "meta" left out, that the tensors live on, in order."""
    found = [t.device.type for t in tensors if not t.is_cpu]
    return [kind for kind in dict.fromkeys(found) if kind != "meta"] if found else found


class Coverage:
    """What a region with arguments on the types `covered` keeps of accelerators, and what it may not use therefore.

    Raises UnsupportedAcceleratorError if the state of one of these types cannot be kept (DEV-06).
    """

    __slots__ = ("asleep", "states", "unkept")

    def __init__(self, covered: list[str]) -> None:
        self.asleep: str | None = None  # not initialized yet
        self.unkept: str | None = None  # without functions for its state
        self.states = [state for kind in covered for state in _states(kind, require(kind))]
        default = DefaultDeviceType.get_device_type()
        if default in ("cpu", "meta") or default in covered:
            return
        module = torch.get_device_module(default)
        if not is_initialized(module):
            self.asleep = default
        elif missing(module):
            self.unkept = default
        else:
            self.states += _states(default, module)

    def check_use(self, saved: Callable[[], Iterable[str]]) -> None:
        """Raise if the forward, which saved values on the types `saved()`, used an accelerator that is not covered."""
        if self.asleep is not None and is_initialized(torch.get_device_module(self.asleep)):
            raise DeviceInitializedInsideError(self.asleep)  # DEV-09
        if self.unkept is not None and self.unkept in saved():
            require(self.unkept)


def _states(kind: str, module: Any) -> list[DeviceState]:
    return [_state(module, i) for i in range(module.device_count()) if engine.has_context(kind, i)]


def _state(module: Any, index: int) -> DeviceState:
    with module.device(index):
        return DeviceState(module, index, module.get_rng_state())


# The CPU's generator in an accelerator's clothes.
CPU = SimpleNamespace(
    device=lambda index: nullcontext(), get_rng_state=torch.get_rng_state, set_rng_state=torch.set_rng_state
)


def state_behind(tensor: Tensor) -> DeviceState | None:
    """The generator of the device that the tensor lives on, as it is now; None where it cannot be read."""
    if tensor.is_cpu:
        return _state(CPU, 0)
    module = getattr(torch, tensor.device.type, None)
    return None if module is None or missing(module) else _state(module, tensor.get_device())


def missing(module: Any) -> list[str]:
    """The functions that an accelerator's module should have and lacks."""
    return [name for name in REQUIRED if not hasattr(module, name)]


def require(kind: str) -> Any:
    """The module of a device type, or UnsupportedAcceleratorError."""
    module = getattr(torch, kind, None)
    lacks = list(REQUIRED) if module is None else missing(module)
    if lacks:
        raise UnsupportedAcceleratorError(kind, ", ".join(lacks))
    return module


def is_initialized(module: Any) -> bool:
    """Whether the accelerator is in use by this process."""
    if hasattr(module, "is_initialized"):
        return bool(module.is_initialized())
    return bool(getattr(module, "_initialized", True))


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """Indices and generator states of the accelerator devices that tensors in `args` live on, nested ones included.

    One type only: with several, warns and takes CUDA, else the first (DEV-07). Regions themselves cover all.
    Source: torch.utils.checkpoint.get_device_states.
    """
    tensors = tensors_in(args)
    found = kinds(tensors)
    if not found:
        return [], []
    kind = "cuda" if "cuda" in found else found[0]
    if len(found) > 1:
        warnings.warn(f"tensors on several types of accelerator, {found}: only {kind!r} is looked at", stacklevel=2)
    module = require(kind)
    indices = list(dict.fromkeys(t.get_device() for t in tensors if t.device.type == kind))
    return indices, [_state(module, i).state for i in indices]


def set_device_states(devices: Sequence[int], states: Sequence[Tensor], *, device_type: str | None = None) -> None:
    """Set the generators of `devices` to `states`; "meta" has none and is ignored (DEV-10).

    `device_type` defaults to DefaultDeviceType's. Source: torch.utils.checkpoint.set_device_states.
    """
    kind = DefaultDeviceType.get_device_type() if device_type is None else device_type
    if kind == "meta" or not devices:
        return
    module = require(kind)
    for index, state in zip(devices, states, strict=True):
        with module.device(index):
            module.set_rng_state(state)
