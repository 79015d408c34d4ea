"""The entry point: `checkpoint`, as a call and as a decorator."""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch

from ckptspec.reference import engine, nonreentrant, reentrant
from ckptspec.reference.ambient import EXCLUSIVE
from ckptspec.reference.settings import COMMON, Contexts, Options, noop_context_fn, validate

P = ParamSpec("P")
R = TypeVar("R")


@overload
def checkpoint(
    function: None = None,
    *,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool | str = True,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


@overload
def checkpoint(
    function: Callable[..., R],
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool | str = True,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    **kwargs: Any,
) -> R: ...


def checkpoint(
    function: Callable[..., Any] | None = None,
    *args: Any,
    use_reentrant: bool | None = None,
    preserve_rng_state: bool | str = True,
    context_fn: Callable[[], Contexts] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    respect_saved_tensors_hooks: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Call `function(*args, **kwargs)` without keeping what it computes: backward calls it again (a *replay*).

    Returns what the function returns. Without a function, returns a decorator with these options; the decorated
    function takes all of its arguments, also ones named like options. A plain call where gradients are off (API-10).

    Args:
        use_reentrant: False for the non-reentrant form (recommended), True for the reentrant one, whose limits are in
            `reentrant.py`. Not given: a warning, and True (API-03).
        preserve_rng_state: replay with the random numbers of the forward: CPU and accelerators, see `devices.py`.
            "exclusive": also among random regions in several threads, one at a time; without it these may replay with
            other numbers, since torch's CPU generator is one for the process (LB-16). See `ambient.py`.
        context_fn: returns two contexts, one for the forward, one for the replays.
        determinism_check: what of a recomputed value is compared with the saved one: "default", "values", "none"; see
            `determinism.py`. "default" does not see a value that drifts without an in-place change (LB-21).
        debug: errors of a replay list the operators of forward and replay, with where they were called.
        early_stop: end a replay after the last value that backward needs; code after it, a lock's release for instance,
            then does not run in the replay (STOP-08). `finally` blocks do.
        respect_saved_tensors_hooks: whether results saved by a selective policy pass through the user's hooks.

    The function should depend on its arguments only. Side effects happen again in the replay (SIDE-01), batch norm's
    running statistics among them; a list that it consumes is consumed (IO-07).

    Raises ValueError for options, or keyword arguments, that the chosen form does not have; in backward, a subclass of
    CheckpointError that names the cause. Source: torch.utils.checkpoint.checkpoint, 2.14.
    """
    options = Options(
        use_reentrant, preserve_rng_state, context_fn, determinism_check, debug, early_stop, respect_saved_tensors_hooks
    )
    if function is None and not args:
        if kwargs:
            raise ValueError(f"Unexpected keyword arguments: {', '.join(kwargs)}")  # DECO-03
        validate(options)
        return functools.partial(CheckpointedFunction, options=options)
    form, options = _choose(options, kwargs)
    return form(function, args, kwargs, options)


class CheckpointedFunction(Generic[P, R]):
    """A function that each call checkpoints; binds like a function when it is a class attribute (DECO-04).

    Wrapping a module gives a callable, not a module (DECO-12).
    """

    def __init__(self, function: Callable[P, R], options: Options) -> None:
        self._function = function
        self._options = options
        functools.update_wrapper(self, function, updated=())  # DECO-05

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        form, options = _choose(self._options, kwargs)
        result: R = form(self._function, args, kwargs, options)
        return result

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)


def _choose(options: Options, kwargs: dict[str, Any]) -> tuple[Callable[..., Any], Options]:
    """How to run the call, and the options that then hold; returns first, so that nesting costs no stack depth."""
    if torch.compiler.is_compiling():  # torch.compile leaves the region, and its replays, to eager execution
        return _uncompiled, options
    if options.use_reentrant is None:
        warnings.warn(
            "checkpoint: pass use_reentrant explicitly; False is recommended, True is the default as yet.",
            stacklevel=3,
        )
        options = options._replace(use_reentrant=True)
    options = options.resolved()
    if options not in COMMON:
        validate(options)
    if options.use_reentrant and kwargs:  # API-05
        raise ValueError(f"Unexpected keyword arguments: {', '.join(kwargs)}. Only use_reentrant=False has them.")
    if not torch.is_grad_enabled():
        return _plain, options  # API-10
    if options.preserve_rng_state == "exclusive":
        return _exclusive, options
    return _form(options), options


def _form(options: Options) -> Callable[..., Any]:
    return reentrant.call if options.use_reentrant else nonreentrant.call


def _exclusive(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    with EXCLUSIVE:
        return _form(options)(function, args, kwargs, options)


def _plain(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    return function(*args, **kwargs)


def _uncompiled(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    return engine.uncompiled(_eager, function, args, kwargs, options)


def _eager(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    form, options = _choose(options, kwargs)
    return form(function, args, kwargs, options)
