"""A witness: an implementation with one seeded fault, and the clauses that must break on it.

The fault is built on our reference (or on the NumPy tape of tests/, where that is clearer): by the options that it
passes, by wrapping the checkpointer, or by patching the implementation while the witness is run.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pathlib
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ckptspec.conformance.backend import Adapter, Checkpointer, Region
from ckptspec.conformance.clause import CHAPTERS
from ckptspec.conformance.running.resolve import Source, find, load

FOLDER = pathlib.Path(__file__).parent

Fault = Callable[[pytest.MonkeyPatch, Checkpointer], Checkpointer | None]
"""Plants the fault: by patching, undone afterwards, or by returning another checkpointer."""


@dataclass(frozen=True)
class Witness:
    """One faulty implementation.

    breaks: ids of the clauses that must fail or be wrong on it.
    on: the implementation that it is built on, "reference" or "tape"; variant: which of its variants.
    source: a report of a real implementation that had this fault, '' if none is known.
    device: where its arrays live.
    """

    fault: Fault
    breaks: tuple[str, ...]
    on: str
    variant: str
    source: str
    device: str = "cpu"

    @property
    def name(self) -> str:
        return getattr(self.fault, "__name__", "unnamed")

    @property
    def sentence(self) -> str:
        return " ".join((self.fault.__doc__ or "").split("\n\n")[0].split())


_witnesses: dict[str, Witness] = {}


class WitnessError(Exception):
    """A witness is written wrongly: the message names it and says what is wrong."""


def witness(
    *breaks: str, on: str = "reference", variant: str = "non-reentrant", source: str = "", device: str = "cpu"
) -> Callable[[Fault], Fault]:
    """Enter a fault. Raises WitnessError if its name is taken or it has no docstring."""

    def enter(fault: Fault) -> Fault:
        new = Witness(fault, breaks, on, variant, source, device)
        if new.name in _witnesses:
            raise WitnessError(f"{new.name}: there are two witnesses of that name")
        if not new.sentence or not breaks:
            raise WitnessError(
                f"{new.name}: a witness says in its docstring what is wrong, and which clauses it breaks"
            )
        _witnesses[new.name] = new
        return fault

    return enter


def witnesses() -> dict[str, Witness]:
    """Every witness by name, in the order of the chapters."""
    for chapter in CHAPTERS:
        if (FOLDER / f"{chapter}.py").exists():
            importlib.import_module(f"ckptspec.witnesses.{chapter}")
    return dict(_witnesses)


@functools.cache
def adapter(on: str) -> Adapter:
    """The implementation that a witness is built on."""
    return load(source(on))


def source(on: str) -> Source:
    """Where that implementation comes from."""
    if on == "tape":
        return find("tests/tape.py:adapter", FOLDER.parent)
    return Source(on, f"ckptspec.adapters.{on}_adapter")


def wrapping(checkpointer: Checkpointer, call: Callable[..., Any]) -> Checkpointer:
    """The checkpointer with `call(checkpoint, region, args, kwargs, options)` in front of `checkpoint`.

    The decorator form goes the same way.
    """

    def checkpoint(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return call(checkpointer.checkpoint, region, args, kwargs, options)

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        return lambda region: functools.wraps(region)(lambda *args, **kwargs: checkpoint(region, args, kwargs, options))

    return dataclasses.replace(
        checkpointer, checkpoint=checkpoint, decorator=decorator if checkpointer.decorator else None
    )


def with_options(checkpointer: Checkpointer, **forced: Any) -> Checkpointer:
    """The checkpointer with these options always set, whatever the caller says."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: checkpoint(region, args, kwargs, options | forced),
    )


def with_region(checkpointer: Checkpointer, change: Callable[[Region], Region]) -> Checkpointer:
    """The checkpointer that runs `change(region)` in the region's place."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: checkpoint(change(region), args, kwargs, options),
    )


def with_api(checkpointer: Checkpointer, **names: Any) -> Checkpointer:
    """The checkpointer whose module has these in the place of its own names."""
    return dataclasses.replace(checkpointer, api=types.SimpleNamespace(**vars(checkpointer.api) | names))


def with_replay(checkpointer: Checkpointer, change: Callable[[Region], Region]) -> Checkpointer:
    """The checkpointer that runs `change(region)` in the region's place, in replays only."""

    def changed(region: Region) -> Region:
        replay, executions = change(region), 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal executions
            executions += 1
            return (region if executions == 1 else replay)(*args, **kwargs)

        return call

    return with_region(checkpointer, changed)
