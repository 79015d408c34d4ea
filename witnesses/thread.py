"""Faults with threads."""

import threading
import time
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import frame
from ckptspec.witnesses.witness import with_region, witness, wrapping


@witness("THREAD-01")
def threads_share_one_place_for_arguments(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A call leaves its arguments in a place that all threads share, from which it takes them a moment later."""
    place: dict[str, Any] = {}

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        place["args"] = args
        time.sleep(0.01)
        return checkpoint(region, place["args"], kwargs, options)

    return wrapping(checkpointer, call)


@witness("THREAD-02", source="pytorch/pytorch#96764")
def a_second_thread_does_not_wait_for_the_replay(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A thread that asks for a value while another replays the region takes what is there: zeros."""
    unpack, replaying = frame.Frame.unpack, set()

    def busy(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        if self in replaying:
            return torch.zeros(slot.description[0], dtype=torch.float64)
        replaying.add(self)
        time.sleep(0.01)
        try:
            return unpack(self, slot)
        finally:
            replaying.discard(self)

    patch.setattr(frame.Frame, "unpack", busy)


@witness("THREAD-03")
def threads_draw_in_each_others_regions(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Random regions in several threads do not wait for each other, though that was asked."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        return checkpoint(region, args, kwargs, {k: v for k, v in options.items() if k != "preserve_rng_state"})

    return wrapping(checkpointer, call)


@witness("THREAD-04")
def another_thread_finds_no_arguments(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region's arguments are kept for the thread that called it; in another thread they are zero."""

    def change(region: Region) -> Region:
        thread = threading.get_ident()

        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != thread:
                args = tuple(torch.zeros_like(a, requires_grad=a.requires_grad) for a in args)
            return region(*args, **kwargs)

        return call

    return with_region(checkpointer, change)
