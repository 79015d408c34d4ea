"""Faults on accelerators, seen on a simulated one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

import ckptspec.reference as reference
from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import devices, nonreentrant
from ckptspec.reference.devices import Coverage, DefaultDeviceType, DeviceState
from ckptspec.witnesses.witness import witness, wrapping


def _only_arguments_count(patch: pytest.MonkeyPatch) -> None:
    """What torch does: an accelerator takes part if an argument lives on it."""
    patch.setattr(DefaultDeviceType, "get_device_type", staticmethod(lambda: "cpu"))


@witness("DEV-01", "DEV-02", "DEV-03", "DEV-04", "DEV-05", "DEV-07", "DEV-11", "DEV-12", device="sim")
def only_the_cpu_is_preserved(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The state of no accelerator is kept."""
    patch.setattr(devices, "_states", lambda kind, module: [])


@witness("DEV-02", device="sim")
def only_the_current_device_is_preserved(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Of several devices of one type, only the current one's state is kept."""
    patch.setattr(devices, "_states", lambda kind, module: [devices._state(module, module.current_device())])


@witness("DEV-03", device="sim", source="pytorch/pytorch#121462")
def containers_are_not_searched(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Accelerators are looked for among the arguments, but not in containers."""
    _only_arguments_count(patch)
    patch.setattr(nonreentrant, "tensors_in", lambda found: [t for t in found if isinstance(t, torch.Tensor)])


@witness("DEV-04", "DEV-11", "DEV-12", device="sim", source="torch.utils.checkpoint, `get_device_states(*args)`")
def only_positional_arguments_are_searched(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Accelerators are looked for among the positional arguments only."""
    _only_arguments_count(patch)

    def call(checkpoint: Any, region: Any, args: tuple[Any, ...], kwargs: dict[str, Any], options: Any) -> Any:
        return checkpoint(lambda *args: region(*args, **kwargs), args, {}, options)

    return wrapping(checkpointer, call)


@witness("DEV-05", device="sim", source="pytorch/pytorch#128671")
def states_go_to_the_default_device(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A state is restored on the type of device that is the default at backward."""
    swap = DeviceState.swap

    def elsewhere(state: DeviceState) -> DeviceState:
        kind = DefaultDeviceType.get_device_type()
        return state if kind == "cpu" else swap(state._replace(module=getattr(torch, kind)))

    patch.setattr(DeviceState, "swap", elsewhere)


@witness("DEV-06", device="sim", source="pytorch/pytorch#194478")
def an_accelerator_that_lacks_something_is_skipped(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """An accelerator whose module lacks a function is left out without a word."""
    kinds = devices.kinds

    def complete(tensors: Iterable[torch.Tensor]) -> list[str]:
        return [kind for kind in kinds(tensors) if not devices.missing(getattr(torch, kind))]

    _only_arguments_count(patch)
    patch.setattr(devices, "kinds", complete)


@witness("DEV-07", device="sim", source="torch.utils.checkpoint, `_infer_device_type`")
def the_first_type_of_device_counts(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Of the types of device among the arguments only the first is looked at, and "meta" is one."""

    def first(tensors: Iterable[torch.Tensor]) -> list[str]:
        found = next((t.device.type for t in tensors if not t.is_cpu), "meta")
        return [] if found == "meta" else [found]

    _only_arguments_count(patch)
    patch.setattr(devices, "kinds", first)


@witness("DEV-08", device="sim")
def the_default_type_is_fixed(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Setting the default type of device has no effect."""
    patch.setattr(DefaultDeviceType, "set_device_type", staticmethod(lambda device="cuda": None))


@witness("DEV-09", device="sim", source="torch.utils.checkpoint, reentrant form")
def waking_an_accelerator_goes_unnoticed(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Nothing looks after the forward whether the region initialized an accelerator whose state nobody knows."""
    patch.setattr(Coverage, "check_use", lambda coverage, saved: None)


@witness("DEV-10", device="sim")
def states_are_set_whatever_the_type(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """States are set on the default type of device, whatever type is named."""
    set_states = reference.set_device_states
    patch.setattr(
        reference, "set_device_states", lambda devices, states, *, device_type=None: set_states(devices, states)
    )
