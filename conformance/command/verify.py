"""`ckptspec verify`: is a report whole, and does it say what its cases say?"""

from __future__ import annotations

import importlib.util
import json
import pathlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import click

from ckptspec.conformance.command import reading
from ckptspec.conformance.gate import worst
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report import model
from ckptspec.conformance.report.model import Report, ReportError
from ckptspec.conformance.verdict import Verdict

SCHEMA = pathlib.Path(model.__file__).with_name("report.schema.json")
SHOWN = 5
"""Violations of the schema that are named for a report."""


@click.command()
@click.argument("reports", nargs=-1, required=True, type=click.Path(path_type=pathlib.Path))
@click.pass_context
def command(ctx: click.Context, reports: tuple[pathlib.Path, ...]) -> None:
    """Check reports, each a report.json or a folder with one: schema, footer, and counts made anew from the cases.

    \b
    ckptspec verify reports/*/*

    Exit code: 0 if all are valid, 1 if not.
    """
    is_schema_checked = importlib.util.find_spec("jsonschema") is not None
    if not is_schema_checked:
        click.echo("the schema is not checked: pip install 'ckptspec[schema]'", err=True)
    is_valid = True
    for path in [reading.path(asked) for asked in reports]:
        problems = list(_problems(path, is_schema_checked))
        is_valid &= not problems
        for problem in problems:
            click.echo(printable(f"✗ {problem}" if str(path) in problem else f"✗ {path}: {problem}"))
        if not problems:
            click.echo(printable(f"{path} is valid"))
    ctx.exit(0 if is_valid else 1)


def _problems(path: pathlib.Path, is_schema_checked: bool) -> Iterator[str]:
    try:
        report = model.load(path)
    except ReportError as error:
        yield str(error)
        return
    violations = list(_violations(report)) if is_schema_checked else []
    try:
        yield from violations or _contradictions(report, path.parent)
    except (KeyError, TypeError, ValueError) as error:
        yield f"its parts are not those of a report: {type(error).__name__} {error}"


def _violations(report: Report) -> Iterator[str]:
    import jsonschema

    errors = list(jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text())).iter_errors(report))
    for error in errors[:SHOWN]:
        place = "/".join(map(str, error.absolute_path)) or "the whole"
        yield f"schema: {place}: {error.message[:200]}"
    if len(errors) > SHOWN:
        yield f"schema: {len(errors) - SHOWN} more"


def _contradictions(report: Report, folder: pathlib.Path) -> Iterator[str]:
    """Where the report says something else than its cases, or names a reproducer that is not there."""
    if report["counts"] != _counted(report):
        yield "the counts are not those of its cases"
    names = Counter(case["case"] for _, case in reading.cases(report))
    yield from (f"{name} is there {n} times" for name, n in names.items() if n > 1)
    for stated, case in reading.cases(report):
        if case["clause"] != stated["id"]:
            yield f"{case['case']} stands under {stated['id']}"
        if case["variant"] not in report["adapter"]["variants"]:
            yield f"{case['case']} is of a variant that the adapter does not have"
        if report["run"]["good"] and case["expectation"] in ("unexpected", "stale"):
            yield f"{case['case']} is {case['expectation']}, yet the run is said to be good"
        if case["reproducer"] and not (folder / case["reproducer"]).is_file():
            yield f"{case['case']}: there is no file {case['reproducer']}"


def _counted(report: Report) -> dict[str, dict[str, dict[str, int]]]:
    """variant -> level -> verdict -> number of clauses, a clause counting with its worst case."""
    verdicts = defaultdict(list)
    for stated, case in reading.cases(report):
        verdicts[case["variant"], stated["id"], stated["level"]].append(Verdict(case["verdict"]))
    counts: dict[str, dict[str, Any]] = {}
    for (variant, _, level), found in verdicts.items():
        of_level = counts.setdefault(variant, {}).setdefault(level, Counter())
        of_level[worst(found)] += 1
    return counts
