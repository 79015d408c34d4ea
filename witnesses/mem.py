"""Faults of memory: what is held too long."""

from __future__ import annotations

from typing import Any

import pytest

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine
from ckptspec.reference.frame import Frame, Replay, Slot
from ckptspec.witnesses.witness import with_region, witness, wrapping


@witness("MEM-01", "MEM-11", "FUZZ-10", source="tensorflow/tensorflow#36981")
def intermediates_are_kept(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """What the region saves is kept beside the slot that stands for it."""
    pack = Frame.pack
    kept: list[Any] = []

    def keeping(frame: Frame, tensor: Any) -> Slot:
        kept.append(tensor.detach())
        return pack(frame, tensor)

    patch.setattr(Frame, "pack", keeping)


@witness("MEM-02", source="pytorch/pytorch#78752")
def recomputed_values_stay_until_backward_ends(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A list of all recomputed values lives as long as the backward."""
    pack = Replay.pack
    kept: list[Any] = []

    def keeping(replay: Replay, tensor: Any) -> Any:
        if not kept:
            engine.at_end_of_backward(kept.clear)
        kept.append(tensor.detach())
        return pack(replay, tensor)

    patch.setattr(Replay, "pack", keeping)


@witness("MEM-03", source="pytorch/pytorch#80151")
def a_value_that_was_taken_stays(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A slot keeps the recomputed value when a backward takes it."""
    unpack = Frame.unpack

    def keeping(frame: Frame, slot: Slot) -> Any:
        value = unpack(frame, slot)
        slot.values[object()] = value, value._version
        return value

    patch.setattr(Frame, "unpack", keeping)


@witness("MEM-04", "MEM-07", "MEM-09", source="pytorch/pytorch#84413")
def a_registry_of_regions_is_never_emptied(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Every region and its arguments are entered into a list, from which nothing is removed."""
    registry: list[object] = []

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        registry.append((region, args, kwargs))
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("MEM-05", source="torch.utils.checkpoint")
def leftovers_stay_with_the_graph(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """What a backward recomputed and did not take is not removed when it ends."""
    patch.setattr(Frame, "forget", lambda frame, key: frame.replayed.pop(key, None))


@witness("MEM-03", "MEM-06", source="pytorch/pytorch#136766")
def recomputed_values_are_kept(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Recomputed values outlive the graph that they were recomputed for."""
    pack = Replay.pack
    kept: list[Any] = []

    def keeping(replay: Replay, tensor: Any) -> Any:
        kept.append(tensor.detach())
        return pack(replay, tensor)

    patch.setattr(Replay, "pack", keeping)


@witness("MEM-07", "MEM-09", source="pytorch/pytorch#154642")
def a_region_is_part_of_a_cycle(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The function is wrapped in one that refers to itself, so that only the garbage collector releases it."""

    def change(region: Region) -> Region:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            assert wrapped is not None
            return region(*args, **kwargs)

        return wrapped

    return with_region(checkpointer, change)


@witness("MEM-10", source="pytorch/pytorch#178568")
def only_positional_arguments_go_through_the_hooks(
    patch: pytest.MonkeyPatch, checkpointer: Checkpointer
) -> Checkpointer:
    """Arguments given by keyword are held by the region itself, also inside another region."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        return checkpoint(lambda *args: region(*args, **kwargs), args, {}, options)

    return wrapping(checkpointer, call)
