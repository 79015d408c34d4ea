"""Faults of views."""

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine
from ckptspec.witnesses.witness import with_replay, witness, wrapping


@witness("VIEW-01")
def results_are_copies(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region's results are copied, so that a view of an argument no longer is one."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        leaves, structure = engine.flatten(checkpoint(region, args, kwargs, options))
        return engine.unflatten([x.clone() if isinstance(x, torch.Tensor) else x for x in leaves], structure)

    return wrapping(checkpointer, call)


@witness("VIEW-03", source="pytorch/pytorch#36383")
def results_that_are_views_lose_their_gradient(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The backward of a region whose result is a view is never called."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        result = checkpoint(region, args, kwargs, options)
        if isinstance(result, torch.Tensor) and result._is_view():
            return result.detach() + 0.0 * result
        return result

    return wrapping(checkpointer, call)


@witness("VIEW-04")
def arguments_are_restored_from_their_storage(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay takes an argument from the start of its storage, whatever its offset and strides are."""

    def restored(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.numel() * x.element_size() > x.untyped_storage().nbytes():
            return x
        new = torch.empty(x.shape, dtype=x.dtype)
        new.set_(x.untyped_storage(), 0, x.shape, new.stride())
        return new.requires_grad_(x.requires_grad)

    def change(region: Region) -> Region:
        return lambda *args, **kwargs: region(*map(restored, args), **kwargs)

    return with_replay(checkpointer, change)
