"""Faults of repeated backward."""

# mypy: disable-error-code="no-untyped-call"
# torch ships types, but leaves `autograd.Function.apply` without.

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import reentrant
from ckptspec.witnesses.handwritten import handwritten
from ckptspec.witnesses.witness import with_region, witness


@witness("RETAIN-01", "GRAD-18", variant="reentrant", source="zhanghang1989/PyTorch-Encoding#76")
def replays_share_their_inputs(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Every replay uses the same detached inputs, in which gradients add up from backward to backward."""
    right = reentrant.detach_variable
    made: dict[int, Any] = {}

    def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        new = right(inputs)
        return tuple(
            made.setdefault(x.data_ptr(), y) if isinstance(x, torch.Tensor) else x
            for x, y in zip(inputs, new, strict=True)
        )

    patch.setattr(reentrant, "detach_variable", detach_variable)


@witness("RETAIN-02", "FUZZ-11")
def a_graph_is_never_released(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """What a region keeps for backward stays with it, whether or not the graph is kept."""
    return handwritten(checkpointer)


@witness("RETAIN-04", "GRAD-12", source="pytorch/pytorch#96866")
def every_region_saves_something(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region whose operations save nothing saves its result all the same."""
    return with_region(
        checkpointer, lambda region: lambda *args, **kwargs: _SavesItsInput.apply(region(*args, **kwargs))
    )


class _SavesItsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        assert ctx.saved_tensors
        return gradients[0]
