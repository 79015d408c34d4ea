"""Faults of order and scale."""

import itertools
from collections.abc import Callable, Hashable
from typing import Any

import pytest

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import frame
from ckptspec.witnesses.witness import witness, wrapping


@witness("ORD-01", "ORD-04", "GRAD-11", source="pytorch/pytorch#18566")
def all_regions_are_replayed_at_once(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A backward begins by replaying every region there is, needed or not, in the order of the program."""
    _prefetch(patch, lambda backward, frames: frames)


@witness("ORD-02", source="ByteDance-Seed/VeOmni#979")
def the_order_of_replays_varies(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Regions are replayed in the one order in some backwards and in the other in the rest."""
    _prefetch(patch, lambda backward, frames: frames[:: 1 if backward % 2 else -1])


@witness("ORD-03", source="pytorch/pytorch#6959")
def calls_pile_up(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Each region is called from within what was left by the one before."""
    last: list[Callable[[], object]] = [lambda: None]

    def call(checkpoint: Any, region: Region, *rest: Any) -> Any:
        previous = last[0]
        last[0] = lambda: previous()
        last[0]()
        return checkpoint(region, *rest)

    return wrapping(checkpointer, call)


def _prefetch(patch: pytest.MonkeyPatch, order: Callable[[int, list[frame.Frame]], list[frame.Frame]]) -> None:
    """At the start of each backward, replay all the program's regions, in this order, whether or not it needs them."""
    frames: list[frame.Frame] = []
    backwards, begun = itertools.count(), set[Hashable]()
    done, recompute = frame.Frame.forward_is_done, frame.Frame._recompute

    def forward_is_done(self: frame.Frame) -> None:
        done(self)
        frames.append(self)

    def _recompute(self: frame.Frame, slot: frame.Slot, key: Hashable, group: Any) -> tuple[Any, int]:
        if key not in begun:
            begun.add(key)
            for other in order(next(backwards), list(frames)):
                frame.Replay(other, key).run(*other.arguments.restored())
                other.replayed[key] = len(other.slots)
            frames.clear()
        return slot.values.pop(key, None) or recompute(self, slot, key, group)

    patch.setattr(frame.Frame, "forward_is_done", forward_is_done)
    patch.setattr(frame.Frame, "_recompute", _recompute)
