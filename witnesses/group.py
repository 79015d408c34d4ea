"""Faults of groups."""

import contextlib
import dataclasses
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import engine, frame
from ckptspec.reference.errors import GroupOverlapError
from ckptspec.reference.group import GraphExecGroup
from ckptspec.reference.reentrant import CheckpointFunction
from ckptspec.witnesses.witness import witness


@witness("GROUP-01", "GROUP-04", "GROUP-06", "GROUP-10")
def a_group_does_nothing(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A group is a context without effect: each backward call replays for itself."""
    return dataclasses.replace(checkpointer, group=contextlib.nullcontext)


@witness("GROUP-02", "FUZZ-12")
def a_group_finds_values_by_position(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A group keeps values by their position in a region, whatever region that is."""
    unpack = frame.Frame.unpack
    kept: dict[tuple[object, int], torch.Tensor] = {}

    def by_position(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        group = engine.current_group()
        value = unpack(self, slot)
        return value if group is None else kept.setdefault((group.key, slot.index), value)

    patch.setattr(frame.Frame, "unpack", by_position)


@witness("GROUP-03")
def overlapping_calls_find_zeros(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Where a call within a group needs a value that was used before, it takes zeros."""
    unpack = frame.Frame.unpack

    def unnoticed(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        try:
            return unpack(self, slot)
        except GroupOverlapError:
            return torch.zeros(slot.description[0], dtype=torch.float64)

    patch.setattr(frame.Frame, "unpack", unnoticed)


@witness("GROUP-04")
def an_inner_group_ends_the_outer_one(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A group may be entered within another, and where it is left no group is active."""

    def enter(self: GraphExecGroup) -> GraphExecGroup:
        engine.set_current_group(self)
        return self

    patch.setattr(GraphExecGroup, "__enter__", enter)


@witness("GROUP-05")
def a_group_outlives_its_context(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A group that was left stays active until another is entered."""
    current, enter = engine.current_group, GraphExecGroup.__enter__
    last: list[GraphExecGroup] = []

    def entering(self: GraphExecGroup) -> GraphExecGroup:
        last.clear()
        enter(self)
        last.append(self)
        return self

    patch.setattr(GraphExecGroup, "__enter__", entering)
    patch.setattr(engine, "current_group", lambda: current() or (last[0] if last else None))


@witness("GROUP-06")
def a_group_forgets_when_it_is_left(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A group that is entered again knows nothing of the replays that it had."""
    enter = GraphExecGroup.__enter__

    def afresh(self: GraphExecGroup) -> GraphExecGroup:
        self.key = object()
        return enter(self)

    patch.setattr(GraphExecGroup, "__enter__", afresh)


@witness("GROUP-07", variant="reentrant")
def a_group_keeps_the_reentrant_form_from_replaying(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """In the reentrant form only one region of a group is replayed, for the others the gradient is zero."""
    backward, replayed = CheckpointFunction._backward, []

    def once(ctx: Any, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
        group = engine.current_group()
        found = backward(ctx, gradients)
        if group is None or group not in replayed:
            replayed.append(group)
            return found
        return tuple(g * 0 if isinstance(g, torch.Tensor) else g for g in found)

    patch.setattr(CheckpointFunction, "_backward", staticmethod(once))


@witness("GROUP-08")
def a_group_is_one_for_the_process(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The active group is kept in a variable that all threads see."""
    active: list[Any] = [None]
    patch.setattr(engine, "current_group", lambda: active[0])
    patch.setattr(engine, "set_current_group", lambda group: active.__setitem__(0, group))


@witness("GROUP-09")
def saved_results_are_gone_after_one_call(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A group has no effect, so that a region's saved results can serve one backward call only."""
    return dataclasses.replace(checkpointer, group=contextlib.nullcontext)


@witness("GROUP-11")
def a_group_keeps_the_regions(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A group refers to the regions that it replayed, and with them to all that they captured."""
    make = frame.Ending.__init__

    def strong(self: frame.Ending, of: frame.Frame, key: Any) -> None:
        make(self, of, key)
        self.frame = lambda: of  # type: ignore[assignment]

    patch.setattr(frame.Ending, "__init__", strong)
