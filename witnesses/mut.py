"""Faults of mutation."""

# mypy: disable-error-code="no-untyped-call"
# torch ships types, but leaves `autograd.Function.apply` without.

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import arguments, frame
from ckptspec.reference.errors import CheckpointError, MutatedCaptureError, OverwrittenValueError
from ckptspec.witnesses.witness import with_replay, witness, wrapping


@witness("MUT-01", "MUT-02", "MUT-03", "VIEW-02", source="hpcaitech/ColossalAI#1460")
def arguments_are_not_checked(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay starts from its arguments whatever was done to them since."""
    patch.setattr(arguments.Versions, "error", lambda self: None)


@witness("MUT-04", "MUT-10", "RETAIN-03")
def captures_are_not_checked(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay that finds a captured tensor changed goes on, as torch's does."""
    arguments_are_not_checked(patch, checkpointer)  # which include what a closure holds
    _overlook(patch, MutatedCaptureError)


@witness("MUT-05")
def overwritten_values_are_used(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A recomputed value that the region overwrote after it was saved is used for the gradient, as torch's is."""
    _overlook(patch, OverwrittenValueError)


@witness("MUT-06")
def results_are_kept_for_backward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region's backward insists on its result being unchanged, although it does not need it."""
    return wrapping(checkpointer, lambda checkpoint, *call: _KeepsItsResult.apply(checkpoint(*call)))


@witness("MUT-09", "FUZZ-07", source="pytorch/pytorch#113737")
def in_place_operations_vanish_from_replays(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay turns in-place operations into others whose results are dropped."""

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(torch.Tensor, "add_", torch.Tensor.add)
                return region(*args, **kwargs)

        return call

    return with_replay(checkpointer, change)


def _overlook(patch: pytest.MonkeyPatch, cause: type[CheckpointError]) -> None:
    right = frame.Frame.fail

    def fail(self: frame.Frame, error: CheckpointError) -> None:
        if not isinstance(error, cause):
            right(self, error)

    patch.setattr(frame.Frame, "fail", fail)


class _KeepsItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        assert ctx.saved_tensors
        return gradients[0]
