"""Faults of the decorator form."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import settings
from ckptspec.witnesses.witness import with_api, witness

OPTIONS = frozenset(settings.Options._fields)

Decorator = Callable[[dict[str, Any]], Callable[[Region], Region]]


def _decorating(checkpointer: Checkpointer, decorator: Decorator) -> Checkpointer:
    return dataclasses.replace(checkpointer, decorator=decorator)


@witness("DECO-01", "DECO-06", "DECO-11", "DECO-14", "DECO-16")
def a_decorated_function_is_the_plain_one(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The decorator gives the function back as it is."""
    return _decorating(checkpointer, lambda options: lambda region: region)


@witness("DECO-02")
def keywords_are_options(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A keyword of the decorated function that is named like an option is taken for the option."""

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        def decorate(region: Region) -> Region:
            def call(*args: Any, **kwargs: Any) -> Any:
                own = {k: v for k, v in kwargs.items() if k not in OPTIONS}
                return checkpointer.checkpoint(region, args, own, options)

            return call

        return decorate

    return _decorating(checkpointer, decorator)


@witness("DECO-03")
def unknown_options_are_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """An option that does not exist is dropped when a decorator is made."""
    original = checkpointer.api.checkpoint

    def checkpoint(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **(kwargs if args else {k: v for k, v in kwargs.items() if k in OPTIONS}))

    return with_api(checkpointer, checkpoint=checkpoint)


@witness("DECO-04")
def methods_lose_their_object(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A decorated function is an object that does not bind."""

    class Decorated:
        def __init__(self, call: Region) -> None:
            self._call = call

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self._call(*args, **kwargs)

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        return lambda region: Decorated(checkpointer.decorator(options)(region))  # type: ignore[misc]

    return _decorating(checkpointer, decorator)


@witness("DECO-05")
def names_are_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A decorated function has the wrapper's name and no docstring."""

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        return lambda region: lambda *args, **kwargs: checkpointer.checkpoint(region, args, kwargs, options)

    return _decorating(checkpointer, decorator)


@witness("DECO-06")
def a_decorator_remembers_its_first_function(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A decorator that is used again gives the function that it decorated first."""

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        first: list[Region] = []

        def decorate(region: Region) -> Region:
            first.append(region)
            return lambda *args, **kwargs: checkpointer.checkpoint(first[0], args, kwargs, options)

        return decorate

    return _decorating(checkpointer, decorator)


@witness("DECO-07")
def settings_count_at_decoration(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The setting of early stop is read when a function is decorated."""

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        def decorate(region: Region) -> Region:
            setting = settings._early_stop.get()

            def call(*args: Any, **kwargs: Any) -> Any:
                with settings.set_checkpoint_early_stop(setting):
                    return checkpointer.checkpoint(region, args, kwargs, options)

            return call

        return decorate

    return _decorating(checkpointer, decorator)


@witness("DECO-12")
def a_decorated_object_keeps_its_attributes(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """More than is recorded: a decorated object's attributes are found on the result."""

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        def decorate(region: Region) -> Region:
            return functools.wraps(region)(lambda *args, **kw: checkpointer.checkpoint(region, args, kw, options))

        return decorate

    return _decorating(checkpointer, decorator)


@witness("DECO-13")
def none_is_a_function(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """None in the function's place is called."""
    original = checkpointer.api.checkpoint

    def checkpoint(*args: Any, **kwargs: Any) -> Any:
        return args[0]() if args[:1] == (None,) else original(*args, **kwargs)

    return with_api(checkpointer, checkpoint=checkpoint)


@witness("DECO-16")
def options_of_a_decorator_are_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A decorator always has the default options."""
    return _decorating(checkpointer, lambda options: checkpointer.decorator({}))  # type: ignore[misc]
