"""Faults of arguments and results."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import reentrant
from ckptspec.witnesses.witness import with_region, witness, wrapping


def _arguments(checkpointer: Checkpointer, change: Callable[[Any], Any], *, in_forward: bool = True) -> Checkpointer:
    """The checkpointer whose regions are given changed arguments, in forward and replay or in the replay alone."""

    def changed(region: Region) -> Region:
        executions = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal executions
            executions += 1
            if executions > 1 or in_forward:
                args, kwargs = tuple(map(change, args)), {k: change(v) for k, v in kwargs.items()}
            return region(*args, **kwargs)

        return call

    return with_region(checkpointer, changed)


def _results(checkpointer: Checkpointer, change: Callable[[Any], Any]) -> Checkpointer:
    """The checkpointer that gives changed results to the program."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: change(checkpoint(region, args, kwargs, options)),
    )


def _detached(value: Any) -> Any:
    """The value with all tensors in it cut off from the graph."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)


@witness("IO-01", "IO-12", source="deepspeedai/DeepSpeed#598")
def only_arrays_are_handed_on(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Arguments that are no arrays come as None."""
    return _arguments(checkpointer, lambda x: x if isinstance(x, torch.Tensor | dict | list | tuple) else None)


@witness("IO-02", source="deepspeedai/DeepSpeed#1376")
def integer_arrays_are_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Integer and boolean arrays are kept in a floating buffer, and are zero in the replay."""

    def change(x: Any) -> Any:
        return torch.zeros_like(x) if isinstance(x, torch.Tensor) and not x.is_floating_point() else x

    return _arguments(checkpointer, change, in_forward=False)


@witness("IO-03", source="unslothai/unsloth-zoo#1038")
def keywords_are_constants(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Arrays given by keyword are constants to differentiation."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: checkpoint(region, args, _detached(kwargs), options),
    )


@witness("IO-04", source="unslothai/unsloth-zoo#1038")
def containers_are_constants(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Arrays in containers among the arguments are constants to differentiation."""
    return _arguments(checkpointer, lambda x: x if isinstance(x, torch.Tensor) else _detached(x))


@witness("IO-05")
def lists_come_out_as_tuples(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A list among the results comes out as a tuple."""
    return _results(checkpointer, lambda result: tuple(result) if isinstance(result, list) else result)


@witness("IO-06", source="pytorch/pytorch#124725")
def results_in_containers_are_cut_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Arrays in a list or dict of results are cut off from the graph."""
    return _results(checkpointer, lambda result: _detached(result) if isinstance(result, list | dict) else result)


@witness("IO-08", "IO-09", source="PaddlePaddle/Paddle#70508")
def replay_is_given_other_arrays(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The replay is given new arrays, all of which need a gradient."""

    def change(x: Any) -> Any:
        return x.detach().requires_grad_(x.is_floating_point()) if isinstance(x, torch.Tensor) else x

    return _arguments(checkpointer, change, in_forward=False)


@witness("IO-10")
def returned_arguments_are_cut_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """An argument that the region returns comes back without its gradient."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        result = checkpoint(region, args, kwargs, options)
        if not isinstance(result, tuple):
            return result
        return tuple(_detached(r) if any(r is a for a in args) else r for r in result)

    return wrapping(checkpointer, call)


@witness("IO-11")
def only_the_first_result_has_a_gradient(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Of several results only the first is connected to the graph."""
    return _results(
        checkpointer, lambda result: (result[0], *_detached(result[1:])) if type(result) is tuple else result
    )


@witness("IO-13", variant="reentrant", source="torch.utils.checkpoint")
def a_returned_array_becomes_a_result_itself(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """An array that a region captured and returns is made the region's result itself, a leaf included."""
    patch.setattr(reentrant, "_own", lambda output: output)
