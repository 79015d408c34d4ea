"""Exploring: a property is tried on drawn programs, and the smallest one that breaks it is handed over.

What is drawn is fixed unless a seed is given. A program whose plain run raises or does not repeat is discarded and
counted: it says nothing about checkpointing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis.errors import FlakyFailure

from ckptspec.conformance.programs import PRIMALS, SIDE, Block, Grammar, programs

Property = Callable[[Callable[..., Any], tuple[Any, ...], Block], None]
"""`check(program, primals, block)` raises where the property is broken."""


@dataclass(frozen=True)
class Exploration:
    """How far to go. examples: programs a property; seed: None draws the same ones each time."""

    examples: int = 100
    seed: int | None = None
    is_shrinking: bool = True


DEFAULT = Exploration()


@dataclass
class Explored:
    """What came of it. program: the smallest one that breaks the property, as lines of Python."""

    examples: int = 0
    discarded: int = 0
    replays: int = 0
    program: str = ""


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
    probe = under_test.probe("inputs of regions")

    def attempt(block: Block) -> None:
        found.examples += 1
        found.program = "\n".join(block.text(len(PRIMALS)))
        primals = (
            under_test.array(shape=(SIDE, SIDE)),
            under_test.array(*(0.1 * i - 0.35 for i in range(SIDE * SIDE)), shape=(SIDE, SIDE)),
            under_test.array(0.7, shape=()),
        )

        def program(checkpoint: Any, *values: Any) -> Any:
            return block.call(under_test.ops, list(values), checkpoint, probe)

        try:
            check(program, primals, block)
        except rejected:
            found.discarded += 1
            hypothesis.reject()

    phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
    run = hypothesis.given(programs(grammar))(attempt)
    run = hypothesis.settings(
        max_examples=how.examples,
        derandomize=how.seed is None,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        phases=phases + [hypothesis.Phase.shrink] * how.is_shrinking,
        suppress_health_check=list(hypothesis.HealthCheck),
    )(run)
    if how.seed is not None:
        run = hypothesis.seed(how.seed)(run)
    try:
        run()
    except FlakyFailure as flaky:
        flaky.exceptions[0].add_note(found.program)
        raise flaky.exceptions[0] from None
    except Exception as error:
        error.add_note(found.program)
        raise
    found.program = ""
