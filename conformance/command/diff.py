"""`ckptspec diff`: what changed between two reports."""

from __future__ import annotations

import json
import pathlib

import click

from ckptspec.conformance.command import reading
from ckptspec.conformance.command.console import Mistake, table
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report.difference import compare, markdown, summary
from ckptspec.conformance.report.model import load


@click.command()
@click.argument("before", type=click.Path(path_type=pathlib.Path))
@click.argument("after", type=click.Path(path_type=pathlib.Path))
@click.option("--json", "is_json", is_flag=True, help="As JSON.")
@click.option("--markdown", "is_markdown", is_flag=True, help="As Markdown, for a comment in a review.")
@click.pass_context
def command(ctx: click.Context, before: pathlib.Path, after: pathlib.Path, is_json: bool, is_markdown: bool) -> None:
    """Say what changed between two reports, each a report.json or a folder with one, case by case.

    \b
    ckptspec diff main/reports/mylib reports/mylib

    From harmless to harmful: passes; declined (REFUSED, NOT_OFFERED); FAIL; CRASH and TIMEOUT; WRONG. A case that is
    more harmful than it was has regressed, one that passes again is fixed. N/A, NOT_RUN and ERROR say nothing.

    Exit code: 0 if all is the same or better, 1 if a case regressed, 3 if none did but some are gone or can't be
    compared.
    """
    if is_json and is_markdown:
        raise Mistake("choose one of --json and --markdown")
    found = compare(*(load(reading.path(path)) for path in (before, after)))
    if is_json:
        click.echo(json.dumps(found.to_json(), indent=1))
    elif is_markdown:
        click.echo(markdown(found), nl=False)
    else:
        click.echo(printable(f"from {found.before} to {found.after}"))
        for obstacle in found.obstacles:
            click.echo(printable(f"not comparable: {obstacle}"))
        if found.differences:
            rows = [(d.change, d.case, d.level, d.before, d.after, d.why) for d in found.differences]
            table(("change", "case", "level", "before", "after", ""), rows)
        click.echo(summary(found))
    ctx.exit(found.outcome)
