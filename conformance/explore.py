"""Exploring: a property is tried on drawn programs, and the smallest one that breaks it is handed over.

What is drawn is fixed unless a seed is given. A program whose plain run raises or does not repeat is discarded and
counted: it says nothing about checkpointing.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import hypothesis
import numpy as np
from hypothesis.database import DirectoryBasedExampleDatabase, ExampleDatabase
from hypothesis.errors import FlakyFailure

from ckptspec.conformance.backend import NotWritten
from ckptspec.conformance.grammar import Grammar
from ckptspec.conformance.operations import Kind
from ckptspec.conformance.programs import Program, programs

Property = Callable[[Callable[..., Any], tuple[Any, ...], "Drawn"], None]
"""`check(program, primals, drawn)` raises where the property is broken."""


@dataclass(frozen=True)
class Exploration:
    """How far to go. examples: programs a property; seed: None draws the same ones each time.

    database: a folder where failures are kept, which are tried first the next time. name: under which progress is
    shown, if it is.
    """

    examples: int = 50
    seed: int | None = None
    is_shrinking: bool = True
    database: str = ""
    name: str = ""


DEFAULT = Exploration()


@dataclass
class Explored:
    """What came of it. examples: drawn, up to the first failure; discarded: of these.

    program: the smallest one that breaks the property, as Python that defines `program` and `backward`; with the shape,
    dtype and values of its primals.
    """

    examples: int = 0
    discarded: int = 0
    replays: int = 0
    seed: int | None = None
    program: str = ""
    primals: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Drawn:
    """A drawn program beside its `program` function.

    text: of the program. executions: how often one backward may execute the probe. tolerance: contributions to one
    array may be added in another order, and then differ in the last bits. backward: how backward goes, given the
    pullback.
    """

    text: str
    executions: int
    tolerance: float
    backward: Callable[[Any], Any]


def explore(
    under_test: Any,
    grammar: Grammar,
    check: Property,
    how: Exploration,
    rejected: tuple[type[Exception], ...],
    found: Explored,
) -> None:
    """Try the property; an exception that it raises for the smallest program comes out, with the program as a note.

    `rejected`: exceptions by which a program is discarded. `found` is filled, also when an exception comes out.
    """
    probe = under_test.probe("regions")
    show = _progress(how, found)
    found.seed = how.seed
    has_failed = False

    def attempt(drawn: Program) -> None:
        nonlocal has_failed
        found.examples += not has_failed
        found.program, found.primals = drawn.text, [values(*p) for p in enumerate(drawn.primals)]
        show()
        primals = tuple(under_test.array(*p["values"], dtype=p["dtype"], shape=p["shape"]) for p in found.primals)
        most = probe.executions + 100 * drawn.executions

        def bounded(x: Any) -> Any:
            assert probe.executions < most, "regions are executed without end"
            return probe(x)

        try:
            with _written(drawn, {"ops": under_test.ops, "probe": bounded}, primals) as (program, seen):
                check(program, primals, seen)
        except NotWritten:
            raise
        except rejected:
            found.discarded += not has_failed
            hypothesis.reject()
        except BaseException:
            has_failed = True
            raise
        if found.examples % 50 == 1:
            gc.freeze()  # what has come to stay; a property that counts bytes collects often

    try:
        _run(attempt, grammar, how, check.__qualname__)
    except FlakyFailure as flaky:
        flaky.exceptions[0].add_note(found.program)
        raise flaky.exceptions[0] from None
    except Exception as error:
        error.add_note(found.program)
        raise
    found.program, found.primals = "", []


def values(number: int, kind: Kind) -> dict[str, Any]:
    """The primal of that number: evenly spaced between about -0.7 and 0.9, or whole numbers."""
    size = int(np.prod(kind.shape))
    spaced = range(size) if not kind.is_floating else np.linspace(-0.7, 0.9, size) if size > 1 else [0.6]
    return {
        "shape": list(kind.shape),
        "dtype": kind.dtype,
        "values": [round(float(v) + 0.05 * number, 2) if kind.is_floating else v for v in spaced],
    }


@contextlib.contextmanager
def _written(
    drawn: Program, words: dict[str, Any], primals: tuple[Any, ...]
) -> Iterator[tuple[Callable[..., Any], Drawn]]:
    """The functions that the text defines."""
    names: dict[str, Any] = dict(words)
    exec(compile(drawn.text, "<drawn program>", "exec"), names)
    checkpoints: list[Any] = []

    def program(checkpoint: Any, *given: Any) -> Any:
        checkpoints[:] = [checkpoint]
        return names["program"](checkpoint, *given)

    def backward(pull: Any) -> Any:
        return names["backward"](checkpoints[0], pull, *primals)

    tolerance = 1e-4 if "float32" in drawn.text or any(k.dtype == "float32" for k in drawn.primals) else 1e-9
    try:
        yield program, Drawn(drawn.text, drawn.executions, tolerance, backward)
    finally:
        names.clear()  # a function and its names refer to each other, and garbage is not collected during a case


def _run(attempt: Callable[[Program], None], grammar: Grammar, how: Exploration, name: str) -> None:
    """Hypothesis, set up. Properties of other names are tried on other programs."""
    phases = [hypothesis.Phase.explicit, hypothesis.Phase.reuse, hypothesis.Phase.generate]
    folder = f"{how.database}/{name.partition('.')[0]}"
    database: ExampleDatabase | None = DirectoryBasedExampleDatabase(folder) if how.database else None
    run = hypothesis.given(programs(grammar))(attempt)
    run = hypothesis.seed(zlib.crc32(f"{name} {how.seed}".encode()))(run)
    run = hypothesis.settings(
        max_examples=how.examples,
        database=database,
        deadline=None,
        report_multiple_bugs=False,
        phases=phases + [hypothesis.Phase.shrink] * how.is_shrinking,
        suppress_health_check=list(hypothesis.HealthCheck),
    )(run)
    run()


def _progress(how: Exploration, found: Explored) -> Callable[[], None]:
    """Writes a line to the error output, every other second."""
    start = last = time.monotonic()

    def show() -> None:
        nonlocal last
        if how.name and time.monotonic() > last + 2:
            last = time.monotonic()
            speed = found.examples / (last - start)
            text = (
                f"{how.name}: {found.examples} of {how.examples} programs, {found.discarded} discarded, {speed:.0f}/s"
            )
            print(text, file=sys.__stderr__, flush=True)

    return show
