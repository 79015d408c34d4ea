"""Faults of higher order."""

# mypy: disable-error-code="no-untyped-call"
# torch ships types, but leaves `autograd.Function.apply` without.

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer
from ckptspec.witnesses.witness import witness, wrapping


@witness("HO-01", "HO-02", "HO-03", "HO-04", "FUZZ-08", source="Oneflow-Inc/oneflow#9053")
def second_orders_lack_a_term(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Half of a region's gradient is computed outside of the graph."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: checkpoint(
            region, tuple(_HalfCutOff.apply(x) if isinstance(x, torch.Tensor) else x for x in args), kwargs, options
        ),
    )


class _HalfCutOff(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return 0.5 * gradients[0] + 0.5 * gradients[0].detach()
