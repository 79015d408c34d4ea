"""Faults of modules that are checkpointed whenever they are called."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import ActivationWrapper, CheckpointWrapper

from ckptspec.conformance.backend import Checkpointer
from ckptspec.witnesses.witness import witness

ON = {"on": "torch_wrapper", "variant": "wrapper non-reentrant"}


def wrapping_with(
    checkpointer: Checkpointer, wrap: Callable[[Callable[..., Any], torch.nn.Module, dict[str, Any]], Any]
) -> Checkpointer:
    """The checkpointer with `wrap(wrapper, module, options)` in front of its wrapper."""
    wrapper = checkpointer.wrapper
    assert wrapper is not None
    return dataclasses.replace(checkpointer, wrapper=lambda module, options: wrap(wrapper, module, options))


class Within(torch.nn.Module):
    """A module that `call(module, *args, **kwargs)` stands in for."""

    def __init__(self, module: torch.nn.Module, call: Callable[..., Any]) -> None:
        super().__init__()
        self.module = module
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(self.module, *args, **kwargs)


def calling(checkpointer: Checkpointer, call: Callable[..., Any]) -> Checkpointer:
    """The checkpointer that wraps a module which `call(module, *args, **kwargs)` stands in for."""
    return wrapping_with(checkpointer, lambda wrapper, module, options: wrapper(Within(module, call), options))


@witness("WRAP-01", **ON)
def stored_names_are_those_of_the_wrapper(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """What is stored of a wrapped module has the wrapper's own name in its names."""
    patch.setattr(ActivationWrapper, "_post_state_dict_hook", staticmethod(lambda module, state, prefix, *args: state))


@witness("WRAP-02", source="pytorch/pytorch#80987", **ON)
def keyword_arguments_of_modules_are_constants(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Arrays among a wrapped module's keyword arguments are cut off from the graph."""

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return module(*args, **{k: v.detach() if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()})

    return calling(checkpointer, call)


@witness("WRAP-03", **ON)
def wrapper_keeps_a_copy_of_the_graph(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A wrapped module is also called plain, and the result is kept beside the other one."""

    kept = []

    def wrap(wrapper: Callable[..., Any], module: torch.nn.Module, options: dict[str, Any]) -> Any:
        wrapped = wrapper(module, options)
        wrapped.register_forward_hook(lambda _, args, result: kept.append(module(*args)))
        return wrapped

    return wrapping_with(checkpointer, wrap)


@witness("WRAP-04", **ON)
def every_part_is_wrapped(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The predicate is ignored: every part of a model is wrapped."""
    wrap_parts = checkpointer.wrap_parts
    assert wrap_parts is not None
    return dataclasses.replace(
        checkpointer, wrap_parts=lambda model, is_wanted, options: wrap_parts(model, lambda _: True, options)
    )


@witness("WRAP-05", source="pytorch/pytorch#91265", **ON)
def wrapped_modules_draw_afresh(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A wrapped module's replay draws numbers of its own."""
    return wrapping_with(
        checkpointer, lambda wrapper, module, options: wrapper(module, options | {"preserve_rng_state": False})
    )


@witness("WRAP-07", **ON)
def parameters_are_named_after_the_wrapper(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A wrapped module's parameters have the wrapper's own name in their names."""
    patch.delattr(ActivationWrapper, "named_parameters")


@witness("WRAP-08", source="pytorch/pytorch#160781", **ON)
def options_of_wrappers_are_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Options given when a module is wrapped are lost."""
    return wrapping_with(checkpointer, lambda wrapper, module, options: wrapper(module, {}))


@witness("WRAP-09", source="facebookresearch/fairscale#777", **ON)
def wrapped_modules_are_executed_twice(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Each execution of a wrapped module executes it a second time, and forgets the result."""

    def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            module(*args, **kwargs)
        return module(*args, **kwargs)

    return calling(checkpointer, call)


@witness("WRAP-09", "WRAP-10", "WRAP-12", "WRAP-15", **ON)
def wrapped_modules_are_cut_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A wrapped module takes its first argument for a constant."""
    return calling(checkpointer, lambda module, x, *args: module(x.detach().requires_grad_(), *args))


@witness("WRAP-11", source="pytorch/pytorch#80151", **ON)
def wrapped_modules_are_never_released(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """All modules that were ever wrapped are kept in a list."""
    kept = []

    def wrap(wrapper: Callable[..., Any], module: torch.nn.Module, options: dict[str, Any]) -> Any:
        kept.append(wrapper(module, options))
        return kept[-1]

    return wrapping_with(checkpointer, wrap)


@witness("WRAP-14", **ON)
def an_exception_ends_checkpointing(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A wrapped module notes that it is being called, and after an exception takes further calls for nested ones."""
    forward: Any = CheckpointWrapper.forward
    inside = []

    def call(self: CheckpointWrapper, *args: Any, **kwargs: Any) -> Any:
        if self in inside:
            return self._checkpoint_wrapped_module(*args, **kwargs)
        inside.append(self)
        result = forward(self, *args, **kwargs)
        inside.remove(self)
        return result

    patch.setattr(CheckpointWrapper, "forward", call)
