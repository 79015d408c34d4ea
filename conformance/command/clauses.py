"""`ckptspec clauses`: the specification as a list."""

from __future__ import annotations

import fnmatch
import json
from typing import Any

import click

from ckptspec.conformance.backend import Capability
from ckptspec.conformance.clause import CHAPTERS, Clause, Level, Profile, registry
from ckptspec.conformance.command.console import Mistake, nearest, table


@click.command()
@click.argument("pattern", default="*", metavar="[GLOB|TEXT]")
@click.option("--level", type=click.Choice([str(v) for v in Level], case_sensitive=False), help="Of this level only.")
@click.option("--profile", type=click.Choice([str(v) for v in Profile]), help="Of this profile only.")
@click.option("--chapter", metavar="NAME", help="Of this chapter only, such as RNG.")
@click.option("--tests", "capability", metavar="CAPABILITY", help="Those only that test it; CORE: that test none.")
@click.option("--json", "is_json", is_flag=True, help="As JSON, with everything that a clause says.")
def command(
    pattern: str, level: str | None, profile: str | None, chapter: str | None, capability: str | None, is_json: bool
) -> None:
    """List the clauses whose id matches a glob, or else whose text contains the words.

    \b
    ckptspec clauses 'RNG-*' --level=must
    ckptspec clauses "saved tensor" --tests=EARLY_STOP --json
    """
    everything = registry()
    wanted = [
        clause
        for clause in _found(pattern, everything)
        if level in (None, clause.level)
        if profile in (None, clause.profile)
        if chapter is None or clause.chapter == _named("chapter", chapter, [name.upper() for name in CHAPTERS])
        if capability is None or _tests(clause, _named("capability", capability, ["CORE", *Capability.__members__]))
    ]
    if not wanted:
        raise Mistake(f"no clause matches {pattern} and these options; there are {len(everything)}")
    if is_json:
        click.echo(json.dumps([_data(clause) for clause in wanted], indent=1))
        return
    rows = [(c.id, c.level, c.profile or "", _binds(c), c.sentence) for c in wanted]
    table(("clause", "level", "profile", "binds", "sentence"), rows)


def _found(pattern: str, everything: dict[str, Clause]) -> list[Clause]:
    """By id; by text if no id matches."""
    by_id = fnmatch.filter(everything, pattern.upper())
    if by_id:
        return [everything[id] for id in by_id]
    by_text = [c for c in everything.values() if pattern.casefold() in _text(c)]
    if not by_text:
        raise Mistake(f"no clause has the id or the text {pattern}{nearest(pattern, everything)}")
    return by_text


def _text(clause: Clause) -> str:
    return " ".join((clause.sentence, clause.not_promised, clause.source, clause.name)).casefold()


def _named(kind: str, asked: str, there: list[str]) -> str:
    """The name that was meant, in capitals."""
    if asked.upper() not in there:
        raise Mistake(f"there is no {kind} {asked}{nearest(asked, there)}")
    return asked.upper()


def _tests(clause: Clause, capability: str) -> bool:
    return not clause.tests if capability == "CORE" else Capability[capability] in clause.tests


def _binds(clause: Clause) -> str:
    return ", ".join(c.name for c in clause.tests) or "core"


def _data(clause: Clause) -> dict[str, Any]:
    return {
        "id": clause.id,
        "chapter": clause.chapter,
        "level": clause.level,
        "profile": clause.profile,
        "tests": [c.name for c in clause.tests],
        "needs": sorted(f.name for f in clause.needs),
        "since": clause.since,
        "each": {name: [str(v) for v in values] for name, values in clause.each.items()},
        "sentence": clause.sentence,
        "not_promised": clause.not_promised,
        "source": clause.source,
        "test": clause.name,
    }
