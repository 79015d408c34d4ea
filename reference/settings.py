"""What a caller can choose: the options of one call, checked in one table, and the settings of the current thread."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

Contexts = tuple[AbstractContextManager[Any], AbstractContextManager[Any]]

# A new thread starts with an empty context, so these are per thread (STOP-12, LB-17) and per asyncio task.
_early_stop: ContextVar[bool | None] = ContextVar("early_stop", default=None)
_debug: ContextVar[bool | None] = ContextVar("debug", default=None)


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool | None) -> Iterator[None]:
    """Override the option `early_stop` of regions whose *forward* runs inside (STOP-03, STOP-04); None defers to it.

    Holds for the current thread only. Source: torch.utils.checkpoint.set_checkpoint_early_stop.
    """
    token = _early_stop.set(enable)
    try:
        yield
    finally:
        _early_stop.reset(token)


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Override the option `debug` of regions whose *forward* runs inside (ERR-06); None defers to it.

    Holds for the current thread only. Source: torch.utils.checkpoint.set_checkpoint_debug_enabled.
    """
    token = _debug.set(enabled)
    try:
        yield
    finally:
        _debug.reset(token)


def noop_context_fn() -> Contexts:
    """The default of `context_fn`: forward and replay run under no context. Source: torch.utils.checkpoint."""
    return nullcontext(), nullcontext()


class Options(NamedTuple):
    """The options of one call, by torch 2.14's names and defaults."""

    use_reentrant: bool | None = None
    preserve_rng_state: bool | str = True
    context_fn: Callable[[], Contexts] = noop_context_fn
    determinism_check: str = "default"
    debug: bool = False
    early_stop: bool = True
    respect_saved_tensors_hooks: bool | None = None

    def resolved(self) -> Options:
        """With this thread's settings applied; they count at the call (DECO-07) and for the non-reentrant form only."""
        early_stop, debug = _early_stop.get(), _debug.get()
        if self.use_reentrant or (early_stop is None and debug is None):
            return self
        return self._replace(
            early_stop=self.early_stop if early_stop is None else early_stop,
            debug=self.debug if debug is None else debug,
        )


DEFAULTS = Options()
COMMON = (Options(False), Options(True))  # need no further validation


class Rule(NamedTuple):
    """One row of the table: the values an option may have, and whether the reentrant form has the option."""

    values: tuple[Any, ...] | None  # None: any callable
    reentrant: bool  # False: ValueError unless left at its default


RULES: dict[str, Rule] = {
    "use_reentrant": Rule((None, True, False), reentrant=True),
    "preserve_rng_state": Rule((True, False, "exclusive"), reentrant=True),
    "context_fn": Rule(None, reentrant=False),  # API-06
    "determinism_check": Rule(("default", "values", "none"), reentrant=True),  # ignored there, yet checked: API-07
    "debug": Rule((False, True), reentrant=False),  # API-06
    "early_stop": Rule((True, False), reentrant=True),  # ignored there: it always runs to the end (STOP-02)
    "respect_saved_tensors_hooks": Rule((None, True, False), reentrant=False),  # API-06
}


def validate(options: Options) -> None:
    """Raise ValueError for an option that has no such value, or that the variant or another option excludes."""
    for (name, rule), value, default in zip(RULES.items(), options, DEFAULTS, strict=True):
        if value is default:
            continue
        if not (callable(value) if rule.values is None else value in rule.values):
            allowed = "a callable" if rule.values is None else f"one of {list(rule.values)}"
            raise ValueError(f"{name} should be {allowed}, but got {value!r}.")  # API-08
        if options.use_reentrant and not rule.reentrant and value != default:
            raise ValueError(f"Passing `{name}` is only supported when use_reentrant=False.")
    if options.debug and options.context_fn is not noop_context_fn:  # API-09
        raise ValueError("debug=True is incompatible with non-default context_fn: its logs need both contexts.")
