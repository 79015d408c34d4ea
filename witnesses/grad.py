"""Faults of first-order gradients."""

# mypy: disable-error-code="no-untyped-call"
# torch ships types, but leaves `autograd.Function.apply` without.

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine
from ckptspec.witnesses.handwritten import Accumulating, Consumed, handwritten
from ckptspec.witnesses.witness import with_region, with_replay, witness, wrapping

Change = Callable[[torch.Tensor], torch.Tensor]


@witness("GRAD-01", "GRAD-20", "GRAD-21", "GRAD-22")
def replays_round(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay starts from arguments of half the precision."""

    def rounded(x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16).to(x.dtype)

    return with_replay(checkpointer, lambda region: _given(region, rounded))


@witness(
    "GRAD-02", "GRAD-03", "GRAD-05", "GRAD-07", "GRAD-09", "GRAD-19",
    source="ooples/AiDotNet.Tensors#643",
)  # fmt: skip
def only_arguments_get_gradients(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A backward differentiates with respect to the region's arguments, not to what it captured."""
    return handwritten(checkpointer)


@witness("GRAD-04", source="pytorch/pytorch#7617")
def every_result_needs_a_gradient(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Every floating-point result says that it needs a gradient."""

    def marked(x: torch.Tensor) -> torch.Tensor:
        return x.requires_grad_() if x.is_floating_point() else x

    return wrapping(checkpointer, lambda checkpoint, *call: _mapped(marked, checkpoint(*call)))


@witness("GRAD-06")
def absent_gradients_are_zeros(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """All arguments pass one node, which makes zeros of the gradients that are absent."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: checkpoint(region, _Together.apply(*args), kwargs, options),
    )


@witness("GRAD-26", source="tensorplay.utils.checkpoint")
def absent_gradients_are_errors(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """All arguments pass one node, which can't do without any of their gradients."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: checkpoint(region, _Needed.apply(*args), kwargs, options),
    )


@witness("GRAD-08", "FUZZ-01", "FUZZ-05", source="tensorflow/tensorflow#36999")
def an_array_counts_once(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """An array in two positions gets the gradient of one of them."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        once = [x if i == [id(y) for y in args].index(id(x)) else x.detach() for i, x in enumerate(args)]
        return checkpoint(region, tuple(once), kwargs, options)

    return wrapping(checkpointer, call)


@witness("GRAD-10", "REENT-02")
def chosen_arrays_are_not_the_only_ones(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A backward adds to the gradients of all that the region reads, whichever arrays were chosen."""
    return handwritten(checkpointer, Accumulating)


@witness("GRAD-13", "NEST-03", "RETAIN-01", "FUZZ-03")
def replays_run_twice(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay executes the region twice, for its values and for its graph."""

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                region(*args, **kwargs)
            return region(*args, **kwargs)

        return call

    return with_replay(checkpointer, change)


@witness("GRAD-14", source="openai/guided-diffusion#144")
def a_region_serves_one_backward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The first backward takes what the region keeps, even if it passed only one of the results."""
    return handwritten(checkpointer, Consumed)


@witness("GRAD-15")
def replays_leave_gradients_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay runs with gradients on or off as backward was called."""
    patch.setattr(engine, "set_grad_enabled", lambda is_enabled: None)


@witness("GRAD-16", "GRAD-24", "REENT-06", variant="reentrant")
def replays_ignore_what_is_cut_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay gives gradients also to what the region cuts off from the graph."""

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(torch.Tensor, "detach", lambda x: x)
                inside.setattr(torch, "no_grad", torch.enable_grad)
                return region(*args, **kwargs)

        return call

    return with_replay(checkpointer, change)


@witness("GRAD-17")
def only_real_arrays_are_differentiable(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Complex arguments are taken for constants."""

    def constant(x: torch.Tensor) -> torch.Tensor:
        return x.detach() + 0 * x if x.is_complex() else x

    return with_region(checkpointer, lambda region: _given(region, constant))


@witness("GRAD-23")
def functions_are_remembered(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A function that was checkpointed before is executed with what it had captured then, as jax's trace is."""
    seen: dict[Region, Region] = {}

    def remembered(region: Any) -> Region:
        if region not in seen:
            captured = [cell.cell_contents for cell in region.__closure__ or ()]
            cells = tuple(types.CellType(list(x) if isinstance(x, list) else x) for x in captured)
            seen[region] = types.FunctionType(region.__code__, region.__globals__, closure=cells)
        return seen[region]

    return with_region(checkpointer, remembered)


@witness("GRAD-25")
def sparse_arguments_lose_their_values(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay is given a sparse argument of the right shape, without its values."""

    def emptied(x: torch.Tensor) -> torch.Tensor:
        return x * 0 if x.is_sparse else x

    return with_replay(checkpointer, lambda region: _given(region, emptied))


class _Together(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        return tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients


class _Needed(_Together):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> Any:
        ctx.set_materialize_grads(False)
        return _Together.forward(ctx, *args)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        if None in gradients:
            raise RuntimeError("an argument has no gradient")
        return gradients


def _mapped(change: Change, structure: Any) -> Any:
    leaves, spec = engine.flatten(structure)
    return engine.unflatten([change(x) if isinstance(x, torch.Tensor) else x for x in leaves], spec)


def _given(region: Region, change: Change) -> Region:
    """The region with this change of its arguments in front."""
    return lambda *args, **kwargs: region(*_mapped(change, args), **_mapped(change, kwargs))
