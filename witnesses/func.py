"""Faults with custom functions and transforms."""

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine, frame
from ckptspec.witnesses.witness import with_region, witness, wrapping


@witness("FUNC-02", source="PaddlePaddle/Paddle#62979")
def saved_values_come_back_as_copies(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Every saved value, also one that needs no gradient, comes back as a copy."""
    unpack = frame.Frame.unpack
    patch.setattr(frame.Frame, "unpack", lambda self, slot: unpack(self, slot).clone())


@witness("FUNC-03")
def a_second_reading_finds_zeros(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A saved value that is read again in one backward is zero."""
    unpack, read = frame.Frame.unpack, set()

    def once(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        value = unpack(self, slot)
        if (slot, engine.graph_task()) in read:
            return torch.zeros_like(value)
        read.add((slot, engine.graph_task()))
        return value

    patch.setattr(frame.Frame, "unpack", once)


@witness("FUNC-05")
def tangents_end_at_a_region(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """In forward mode a region is a constant."""

    def change(region: Region) -> Region:
        return lambda *args: region(*(forward_ad.unpack_dual(a).primal for a in args))  # type: ignore[no-untyped-call]

    return with_region(checkpointer, change)


@witness("FUNC-06", source="pytorch/pytorch#131191")
def a_mapped_region_fails_in_backward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A region under a mapping over a batch is accepted, and its backward fails."""
    patch.setattr(engine, "inside_vmap", lambda: False)


@witness("FUNC-07")
def a_region_is_constant_to_a_transform(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Under the library's transforms a region is called with arguments that are cut off from the gradient."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        if torch._C._functorch.peek_interpreter_stack() is None:
            return checkpoint(region, args, kwargs, options)
        return region(*(a.detach() for a in args), **kwargs)

    return wrapping(checkpointer, call)


@witness("FUNC-08")
def anomaly_detection_switches_checkpointing_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Where anomalies are detected, a region is a plain call."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        if torch.is_anomaly_enabled():
            return region(*args, **kwargs)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)
