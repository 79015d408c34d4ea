"""`ckptspec explain`: one clause, all that is known of it."""

from __future__ import annotations

import inspect
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import click
from rich.syntax import Syntax

from ckptspec.conformance import witnessed
from ckptspec.conformance.clause import FOLDER, Clause
from ckptspec.conformance.command import reading
from ckptspec.conformance.command.console import console, is_terminal, table
from ckptspec.conformance.gate import worst
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report.model import Report, load_all
from ckptspec.conformance.verdict import Verdict


@click.command()
@click.argument("id")
@click.option(
    "--reports",
    "folder",
    type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False),
    help=f"The reports that say who keeps it (default: {reading.DEFAULT}).",
)
def command(id: str, folder: pathlib.Path | None) -> None:
    """Say what a clause promises, how it is tested, which faults it was seen to notice, and who keeps it.

    \b
    ckptspec explain STOP-10
    """
    clause = reading.clause(id)
    folder = folder or reading.DEFAULT
    for part in _text(clause):
        click.echo(f"{part}\n")
    _code(clause)
    _witnesses(clause)
    whole, left_out = load_all(folder)
    _outcomes(clause, whole.values(), folder)
    for line in left_out:
        click.echo(printable(f"left out: {line}"))


def _text(clause: Clause) -> Iterator[str]:
    yield f"{clause.id} ({clause.level}): {clause.sentence}"
    if clause.not_promised:
        yield f"Not promised: {clause.not_promised}"
    yield f"Source: {clause.source}"
    capabilities = ", ".join(f"{c.name} ({c.value})" for c in clause.tests)
    facts = ", ".join(f"{f.name} ({f.value})" for f in sorted(clause.needs, key=lambda f: f.name))
    yield f"Binds: {f'who declares {capabilities}' if capabilities else 'every implementation'}"
    if facts:
        yield f"Needs of the host: {facts}"
    if clause.profile:
        yield f"Profile: {clause.profile}"
    for name, values in clause.each.items():
        yield f"For each {name}: {', '.join(map(str, values))}"


def _code(clause: Clause) -> None:
    lines, first = inspect.getsourcelines(clause.function)
    code = "".join(lines).rstrip()
    click.echo(f"Test: {FOLDER.name}/test_{clause.chapter.lower()}.py:{first}, {clause.name}\n")
    if is_terminal():
        console().print(Syntax(code, "python", theme="ansi_dark", background_color="default"))
    else:
        click.echo(code)
    click.echo()


def _witnesses(clause: Clause) -> None:
    kills = witnessed.committed().get(clause.id, [])
    click.echo("Seen failing on:" if kills else "Seen failing on: nothing yet")
    for kill in kills:
        click.echo(f"  {kill['witness']} ({kill['verdict']}: {kill['how']})")
    click.echo()


def _outcomes(clause: Clause, whole: Iterable[Report], folder: pathlib.Path) -> None:
    """Those who break it first."""
    rows = [row for report in whole for row in _rows(clause, report)]
    if not rows:
        click.echo(f"No report in {folder} speaks of it.")
        return
    order = list(Verdict)
    rows.sort(key=lambda row: (row[1] == Verdict.PASS, order.index(Verdict(row[1]))))
    table(("implementation", "verdict", "how", "why"), rows)


def _rows(clause: Clause, report: Report) -> Iterator[tuple[str, str, str, str]]:
    """A row for each variant."""
    by_variant = defaultdict(list)
    for stated, case in reading.cases(report):
        if stated["id"] == clause.id:
            by_variant[case["variant"]].append(case)
    for variant, cases in by_variant.items():
        verdict = worst(Verdict(case["verdict"]) for case in cases)
        bad = [case for case in cases if case["verdict"] == verdict and verdict is not Verdict.PASS]
        hows = dict.fromkeys(reading.how(case) or case["message"].partition("\n")[0] for case in bad)
        reasons = dict.fromkeys(case["reason"] for case in bad)
        name = f"{report['adapter']['name']} {report['adapter']['version']}, {variant}, {report['run']['device']}"
        yield name, verdict, "; ".join(hows), "; ".join(filter(None, reasons))
