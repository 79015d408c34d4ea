"""Finding and reading what subcommands are given: reports and clauses. What is not there is told with what is."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

from ckptspec.conformance.clause import Clause, registry
from ckptspec.conformance.command.console import Mistake, nearest
from ckptspec.conformance.report.model import Report

DEFAULT = pathlib.Path("reports")
"""The folder in which a run leaves its reports unless it is told otherwise."""


def clause(asked: str) -> Clause:
    """The clause of an id, in capitals or not."""
    clauses = registry()
    if asked.upper() not in clauses:
        raise Mistake(f"there is no clause {asked}{nearest(asked, clauses)}")
    return clauses[asked.upper()]


def path(asked: pathlib.Path) -> pathlib.Path:
    """The report.json that a path means: the file, or the one in that folder."""
    if asked.is_file():
        return asked
    if not asked.exists():
        there = [str(p) for folder in (DEFAULT, asked.parent) for p in folder.glob("*/*/report.json")]
        raise Mistake(f"there is no report {asked}{nearest(str(asked), there)}")
    names = ("report.json", "partial.json", "running.json")  # the last of a run that was killed
    found = next((found for name in names if (found := sorted(asked.rglob(name)))), [])
    if not found:
        raise Mistake(f"there is no report.json in {asked}")
    if len(found) > 1:
        raise Mistake(f"{asked} has {len(found)} reports, name one: {', '.join(map(str, found[:5]))}")
    return found[0]


def cases(of: Report) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each case of a report with its clause."""
    for stated in of["clauses"]:
        for case in stated["cases"]:
            yield stated, case


def how(case: dict[str, Any]) -> str:
    """In which way a case failed, in one or two words."""
    return str(case["label"] or case["exception"] or case["signal"])
