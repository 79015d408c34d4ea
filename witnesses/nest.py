"""Faults of nesting."""

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine, frame, nonreentrant, reentrant
from ckptspec.reference.arguments import Arguments
from ckptspec.witnesses.witness import with_region, witness, wrapping


@witness("NEST-01", "NEST-09")
def inner_regions_lose_gradients(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """What a region inside a region is given counts as a constant."""
    depth = 0

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                return region(*(map(_constant, args) if depth > 1 else args), **kwargs)
            finally:
                depth -= 1

        return call

    return with_region(checkpointer, change)


@witness("NEST-02", source="jax-ml/jax#18817")
def inner_arguments_are_held(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """An inner region keeps its arguments, instead of leaving them to the region around it."""
    patch.setattr(engine, "active_hooks", lambda: None)


@witness("NEST-04")
def inner_gradients_are_constants(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A gradient that a region takes is a constant to the program around it."""
    right: Any = torch.autograd.grad

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(torch.autograd, "grad", lambda *a, **k: tuple(map(_constant, right(*a, **k))))
                return region(*args, **kwargs)

        return call

    return with_region(checkpointer, change)


@witness("NEST-05", variant="reentrant")
def reentrant_regions_inside_others_lose_gradients(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """What a reentrant region inside one of the other form is given counts as a constant."""
    right = reentrant.call

    def call(function: Region, args: tuple[Any, ...], *rest: Any) -> Any:
        inside = engine.active_hooks() is not None
        return right(function, tuple(map(_constant, args)) if inside else args, *rest)

    patch.setattr(reentrant, "call", call)


@witness("NEST-06")
def overlapping_backwards_are_given_nothing(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A backward that asks while another has not taken all of its values is given memory without content."""
    right = frame.Frame.unpack

    def unpack(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        value = right(self, slot)
        return torch.zeros_like(value) if len(self.replayed) > 1 else value

    patch.setattr(frame.Frame, "unpack", unpack)


@witness("NEST-07")
def hooks_inside_a_region_are_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A hook that a region registers is registered on a graph that no backward passes."""

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(torch.Tensor, "register_hook", lambda x, hook: None)
                return region(*args, **kwargs)

        return call

    return with_region(checkpointer, change)


@witness("NEST-08", "NEST-11")
def functions_are_kept(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Every function that was checkpointed is kept alive."""
    kept: list[Region] = []

    def call(checkpoint: Any, region: Region, *rest: Any) -> Any:
        kept.append(region)
        return checkpoint(region, *rest)

    return wrapping(checkpointer, call)


@witness("NEST-12")
def an_array_is_saved_once_a_call(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """An array that stands in several places among an inner region's arguments is saved for the first place only."""
    right: Any = Arguments
    patch.setattr(nonreentrant, "Arguments", lambda *args, nested, **kwargs: right(*args, nested=False, **kwargs))


def _constant(x: Any) -> Any:
    """The same values with a gradient of zero."""
    return x.detach() + 0 * x if isinstance(x, torch.Tensor) else x
