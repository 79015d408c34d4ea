"""What a program is handed: its `checkpoint`, and its backward.

`Plain` and `Checkpoint` have the same methods, so that one program is both the plain run and the checkpointed one.
Every call of the implementation goes through `guarded`, which notes the exceptions that come out.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ckptspec.conformance.backend import Array, Checkpointer, Host, Pullback, Region


class Plain:
    """The `checkpoint` of a plain run: a call, whatever the options."""

    def __call__(self, region: Region, *args: Any, **kwargs: Any) -> Any:
        return region(*args, **kwargs)

    def using(self, **options: Any) -> Plain:
        return self

    def through(self, entry: Callable[..., Any]) -> Plain:
        return self

    def decorator(self, **options: Any) -> Callable[[Region], Region]:
        return lambda region: region

    def sequential(self, functions: Iterable[Region], segments: int, value: Any) -> Any:
        return functools.reduce(lambda value, function: function(value), functions, value)

    def group(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def early_stop(self, value: bool) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def wrapped(self, module: Any) -> Any:
        return module

    def wrap_parts(self, model: Any, is_wanted: Callable[[Any], bool]) -> None:
        pass


class Checkpoint:
    """The `checkpoint` that a program is given: the checkpointer under test, with options bound by `using`."""

    def __init__(self, checkpointer: Checkpointer, guarded: Callable[..., Any], options: dict[str, Any]) -> None:
        self._checkpointer = checkpointer
        self._guarded = guarded
        self._options = options

    def __call__(self, region: Region, *args: Any, **kwargs: Any) -> Any:
        return self._guarded(self._checkpointer.checkpoint, region, args, kwargs, self._options)

    def using(self, **options: Any) -> Checkpoint:
        return Checkpoint(self._checkpointer, self._guarded, self._options | options)

    def through(self, entry: Callable[..., Any]) -> Callable[..., Any]:
        """Regions called by another function of the implementation: `entry(region, *args, **kwargs)`."""
        return lambda *args, **kwargs: self._guarded(lambda: entry(*args, **kwargs))

    def decorator(self, **options: Any) -> Callable[[Region], Region]:
        """The decorator form, with these options."""
        decorator = self._checkpointer.decorator or _no_decorator
        decorate: Callable[[Region], Region] = self._guarded(decorator, self._options | options)
        return lambda region: _Decorated(self._guarded(decorate, region), self._guarded)

    def sequential(self, functions: Iterable[Region], segments: int, *inputs: Any) -> Any:
        """The functions in order on one input, checkpointed in segments."""
        return self._guarded(
            self._checkpointer.sequential or _no_sequential, functions, segments, inputs, self._options
        )

    def group(self) -> contextlib.AbstractContextManager[Any]:
        """A context within which several backward calls share their replays; it may be entered again."""
        return _Noted(self._guarded(self._checkpointer.group or _no_group), self._guarded)

    def early_stop(self, value: bool) -> contextlib.AbstractContextManager[Any]:
        """A context that overrides early stop for the calls inside."""
        return _Noted(self._guarded(self._checkpointer.api.set_checkpoint_early_stop, value), self._guarded)

    def wrapped(self, module: Any) -> Any:
        """A module that is checkpointed whenever it is called; what leaves it is to be called through `noted`."""
        return self._guarded(self._checkpointer.wrapper or _no_wrapper, module, self._options)

    def wrap_parts(self, model: Any, is_wanted: Callable[[Any], bool]) -> None:
        """Such modules in the place of those parts of a model that a predicate chooses."""
        self._guarded(self._checkpointer.wrap_parts or _no_wrapper, model, is_wanted, self._options)


class _Decorated:
    """A decorated function that behaves as the implementation made it, save that its exceptions are noted."""

    def __init__(self, decorated: Any, guarded: Callable[..., Any]) -> None:
        self.__doc__ = getattr(decorated, "__doc__", None)
        self._decorated, self._guarded = decorated, guarded

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._guarded(lambda: self._decorated(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> _Decorated:
        bind = getattr(type(self._decorated), "__get__", None)
        return self if bind is None else _Decorated(bind(self._decorated, instance, owner), self._guarded)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decorated, name)


class Api:
    """A checkpointer's module: functions are guarded, classes are handed out as they are."""

    def __init__(self, module: Any, guarded: Callable[..., Any]) -> None:
        self._module, self._guarded = module, guarded

    def __getattr__(self, name: str) -> Any:
        found = self._guarded(getattr, self._module, name)
        if isinstance(found, type) or not callable(found):
            return found
        return lambda *args, **kwargs: self._guarded(lambda: found(*args, **kwargs))


class _Noted:
    """A context of the implementation; what leaves its ends is noted."""

    def __init__(self, context: Any, guarded: Callable[..., Any]) -> None:
        self._context, self._guarded = context, guarded

    def __enter__(self) -> _Noted:
        self._guarded(self._context.__enter__)
        return self

    def __exit__(self, *exception: Any) -> bool | None:
        is_handled: bool | None = self._guarded(self._context.__exit__, *exception)
        return is_handled


def _no_decorator(options: dict[str, Any]) -> Any:
    raise TypeError("this checkpointer has no decorator form")


def _no_sequential(*args: Any) -> Any:
    raise TypeError("this checkpointer has no sequences")


def _no_wrapper(*args: Any) -> Any:
    raise TypeError("this checkpointer wraps no modules")


def _no_group() -> Any:
    raise TypeError("this checkpointer has no groups of backward calls")


class Pull:
    """Backward: `pull()` gives the gradients of the primals, for a cotangent of ones.

    `outputs` chooses outputs by position, in the order in which the program's result holds them; `inputs` chooses
    primals; `retain` says that there will be another call.
    """

    def __init__(self, host: Host, outputs: Sequence[Array], pullback: Pullback, guarded: Callable[..., Any]) -> None:
        self._host, self._outputs, self._pullback, self._guarded = host, outputs, pullback, guarded

    def __call__(
        self, *, outputs: Iterable[int] | None = None, inputs: Iterable[int] | None = None, retain: bool = False
    ) -> tuple[Array, ...]:
        chosen = range(len(self._outputs)) if outputs is None else set(outputs)
        ones = [
            self._host.ones_like(y) if i in chosen and _is_floating(self._host, y) else None
            for i, y in enumerate(self._outputs)
        ]
        wanted = () if inputs is None else (tuple(inputs),)
        gradients = tuple(self._guarded(self._pullback, ones, retain, *wanted))
        self._host.settle()
        return gradients


def _is_floating(host: Host, array: Array) -> bool:
    return np.issubdtype(host.numpy(array).dtype, np.inexact)
