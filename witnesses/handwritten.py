"""A checkpoint as it is often written by hand: one node for the region, and a backward inside its backward."""

# mypy: disable-error-code="no-untyped-call"
# torch ships types, but leaves `autograd.Function.apply` without.

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from ckptspec.conformance.backend import Checkpointer, Region


class HandWritten(torch.autograd.Function):
    """Differentiates with respect to the region's arguments alone: `HandWritten.apply(region, *args)`.

    accumulates: it calls `backward` instead, which also adds to the gradients of whatever else the region reads.
    is_consumed: a second backward finds nothing.
    """

    accumulates = is_consumed = False

    @staticmethod
    def forward(ctx: Any, region: Region, *args: Any) -> Any:
        ctx.region, ctx.inputs = region, args
        return region(*args)

    @classmethod
    def backward(cls, ctx: Any, *gradients: Any) -> Any:
        inputs = [x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x for x in ctx.inputs]
        with torch.enable_grad():
            outputs = ctx.region(*inputs)
        if cls.is_consumed:
            ctx.inputs = ()
        outputs = (outputs,) if isinstance(outputs, torch.Tensor) else outputs
        outputs, gradients = zip(
            *((y, g) for y, g in zip(outputs, gradients, strict=True) if y.requires_grad), strict=True
        )
        if cls.accumulates:
            torch.autograd.backward(outputs, gradients)
            return None, *(getattr(x, "grad", None) for x in inputs)
        wanted = [i for i, x in enumerate(inputs) if isinstance(x, torch.Tensor) and x.requires_grad]
        found = torch.autograd.grad(outputs, [inputs[i] for i in wanted], gradients, allow_unused=True)
        by_position = dict(zip(wanted, found, strict=True))
        return None, *(by_position.get(i) for i in range(len(inputs)))


class Accumulating(HandWritten):
    accumulates = True


class Consumed(HandWritten):
    is_consumed = True


def handwritten(checkpointer: Checkpointer, function: type[HandWritten] = HandWritten) -> Checkpointer:
    """The checkpointer with this in its place; it claims the same capabilities."""

    def checkpoint(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return function.apply(lambda *args: region(*args, **kwargs), *args)

    return dataclasses.replace(checkpointer, checkpoint=checkpoint)
