"""What a run is about: the clauses that `--clause` and `--profile` select, and whether pytest's own options narrow it.

Every case of a selected clause must be executed: what isn't is NOT_RUN. Only who narrows a run by hand (`-k`,
`--deselect`, `--lf`, the name of a file or of a test) is not asked for the rest.
"""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import pytest

from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import FOLDER, Clause, Profile
from ckptspec.conformance.verdict import Verdict


class SelectionError(Exception):
    """What was asked for selects nothing; the message is one line: what was asked, and what there is."""


@dataclass(frozen=True)
class Selection:
    """The clauses of a run by id, and in words what it was narrowed by."""

    clauses: tuple[str, ...]
    profiles: tuple[Profile, ...]
    said: str
    is_narrowed: bool


def select(config: pytest.Config, clauses: dict[str, Clause]) -> Selection:
    """What the command line selects. Raises SelectionError."""
    globs: list[str] = config.option.clause
    for glob in globs:
        if not fnmatch.filter(clauses, glob):
            raise SelectionError(
                f"--clause={glob} matches none of the {len(clauses)} clauses, {next(iter(clauses))} to"
                f" {list(clauses)[-1]}; SPEC.md lists them"
            )
    profiles = _profiles(config.option.profile or [], clauses)
    selected = [
        id
        for id, clause in clauses.items()
        if not globs or any(fnmatch.fnmatchcase(id, glob) for glob in globs)
        if not profiles or clause.profile in profiles
    ]
    if not selected:
        raise SelectionError(f"--profile={','.join(profiles)} has none of the clauses --clause={','.join(globs)}")
    narrowed = _narrowed(config)
    words = [*(f"profile {p}" for p in profiles), *(f"--clause={glob}" for glob in globs), *narrowed]
    return Selection(tuple(selected), profiles, ", ".join(words), bool(narrowed))


def _profiles(asked: list[str], clauses: dict[str, Clause]) -> tuple[Profile, ...]:
    there = list(dict.fromkeys(c.profile.value for c in clauses.values() if c.profile is not None))
    names = [name.strip() for text in asked for name in text.split(",")]
    for name in names:
        if name not in there:
            raise SelectionError(f"--profile={name}: no profile of that name; there are: {', '.join(there)}")
    return tuple(Profile(name) for name in dict.fromkeys(names))


def _narrowed(config: pytest.Config) -> list[str]:
    """By which of pytest's own options a person chose some of the cases."""
    option = config.option
    found = [f"-k {option.keyword}"] if option.keyword else []
    found += [name for name in ("deselect", "lf", "stepwise") if getattr(option, name, None)]
    return found if any(_has_suite(config, argument) for argument in config.args) else [*found, *config.args]


def _has_suite(config: pytest.Config, argument: str) -> bool:
    """Whether an argument of the command line stands for every chapter."""
    path = (config.invocation_params.dir / argument).resolve()
    return argument == "ckptspec.conformance" or path == FOLDER.resolve() or path in FOLDER.resolve().parents


def cases(clauses: Iterable[Clause], variants: Iterable[str]) -> list[Record]:
    """Every case of the clauses, as one that has not been run."""
    return [
        Record(clause.id, variant, "-".join(map(str, values)), Verdict.NOT_RUN)
        for clause in clauses
        for variant in variants
        for values in itertools.product(*clause.each.values())
    ]
