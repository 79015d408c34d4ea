"""A clause: one normative sentence of the specification, stated and tested by one function.

The decorator carries what a machine needs; the docstring carries what a person needs: the sentence, then what is *not*
promised, then the source. `registry()` imports every chapter and hands out the whole specification in reading order.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pathlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ckptspec.conformance.backend import Capability, Fact

#: Raised whenever the meaning of a clause changes; reports carry it, so that two reports can be compared.
SPEC_REVISION = 1

#: Chapters in reading order. A chapter is one file, `test_<name>.py`.
CHAPTERS = (
    "api", "deco", "grad", "io", "rng", "stop", "det", "mut", "view",
    "retain", "ho", "nest", "ord", "err", "reent", "side", "ctx", "amp",
    "hook", "func", "mem", "seq", "dev", "group", "sel", "thread", "fuzz",
    "compile", "wrap", "dist",
)  # fmt: skip

FOLDER = pathlib.Path(__file__).parent


class Level(enum.StrEnum):
    """How strongly a clause binds (RFC 2119). MUST fails a run, SHOULD is a line, MAY is recorded."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


MUST, SHOULD, MAY = Level.MUST, Level.SHOULD, Level.MAY


class Profile(enum.StrEnum):
    """A named part of the specification that an implementation keeps as a whole or not."""

    CORE = "core"
    FUNCTIONAL = "functional"
    TORCH = "torch"
    DEVICE = "device"
    COMPILE = "compile"
    WRAP = "wrap"
    DIST = "dist"


@dataclass(frozen=True)
class Clause:
    """One clause.

    id: chapter and number, never reused.
    tests: the capabilities in question; without any, every checkpointer must have it (core).
    needs: host facts without which the clause says nothing.
    sentence, not_promised, source: the docstring's three parts; each is one line of text.
    each: parameter name -> values; the clause holds for every one of them.
    """

    id: str
    level: Level
    function: Callable[..., None]
    tests: tuple[Capability, ...]
    needs: frozenset[Fact]
    profile: Profile | None
    since: int
    each: dict[str, tuple[Any, ...]]
    sentence: str
    not_promised: str
    source: str

    @property
    def chapter(self) -> str:
        return self.id.split("-")[0]

    @property
    def name(self) -> str:
        return self.function.__name__


class ClauseError(Exception):
    """A clause is written wrongly: the message names it and says what is missing."""


_registry: dict[str, Clause] = {}


def clause(
    id: str,
    level: Level,
    *,
    tests: Capability | tuple[Capability, ...] = (),
    needs: Iterable[Fact] = (),
    profile: Profile | None = None,
    since: int = 1,
    **each: tuple[Any, ...],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a function into the specification.

    Further keywords parametrise it: `dtype=("float64", "float32")` makes two cases.
    Raises ClauseError for an id or a function name that is taken, and for a docstring without sentence or source.
    """

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        sentence, not_promised, source = _read(id, function)
        capabilities = tests if isinstance(tests, tuple) else (tests,)
        new = Clause(
            id,
            level,
            function,
            capabilities,
            frozenset(needs),
            profile,
            since,
            dict(each),
            sentence,
            not_promised,
            source,
        )
        for other in _registry.values():
            if other.id == id or other.name == new.name:
                raise ClauseError(f"{id} ({new.name}): id or name is taken by {other.id} ({other.name})")
        _registry[id] = new
        return function

    return enter


def _read(id: str, function: Callable[..., None]) -> tuple[str, str, str]:
    """The docstring's sentence, what it does not promise ('' if nothing is said), and its source."""
    paragraphs = [" ".join(p.split()) for p in (inspect.getdoc(function) or "").split("\n\n")]
    named = {"Not promised:": "", "Source:": ""}
    sentences = []
    for paragraph in paragraphs:
        # "Not promised: …" and "Source: …" may share a paragraph, a line each.
        head, _, source = paragraph.partition("Source:")
        sentence, _, not_promised = head.partition("Not promised:")
        named["Source:"] += source.strip()
        named["Not promised:"] += not_promised.strip()
        sentences.append(sentence.strip())
    sentence = " ".join(s for s in sentences if s)
    if not sentence:
        raise ClauseError(f"{id} ({function.__name__}): the docstring has no normative sentence")
    if not named["Source:"]:
        raise ClauseError(f"{id} ({function.__name__}): the docstring has no 'Source:'")
    return sentence, named["Not promised:"], named["Source:"]


def registry() -> dict[str, Clause]:
    """Every clause by id, in reading order. Imports the chapters, never a library under test."""
    for chapter in CHAPTERS:
        importlib.import_module(f"ckptspec.conformance.test_{chapter}")
    order = [chapter.upper() for chapter in CHAPTERS]
    return dict(
        sorted(
            _registry.items(), key=lambda item: (order.index(item[1].chapter), item[1].function.__code__.co_firstlineno)
        )
    )


def by_name(name: str) -> Clause | None:
    """The clause that a test function of this name states."""
    return next((c for c in _registry.values() if c.name == name), None)
