"""`ckptspec repro`: the script that shows a failure with the library alone."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import click

from ckptspec.conformance.command import reading
from ckptspec.conformance.command.console import Mistake, nearest
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report.model import Report, load


@click.command()
@click.argument("report", type=click.Path(path_type=pathlib.Path))
@click.argument("clause", metavar="CLAUSE|CASE")
@click.option("--run", "is_run", is_flag=True, help="Run it in a fresh process, and exit with its code.")
@click.option("--plain", "is_plain", is_flag=True, help="With --run: without checkpoint, where the fault must be gone.")
@click.pass_context
def command(ctx: click.Context, report: pathlib.Path, clause: str, is_run: bool, is_plain: bool) -> None:
    """Print the stand-alone script of a failing case; a clause with several needs the case's name.

    \b
    ckptspec repro reports/torch/cpu GRAD-05
    ckptspec repro reports/torch/cpu 'MUT-03[reentrant-in a list]' --run

    The script exits with 1 where the fault is there, with 0 where it is not, and with 2 for any other trouble.
    """
    at = reading.path(report)
    script = _script(at, _case(load(at), clause))
    if not is_run:
        click.echo(script.read_text(encoding="utf-8"), nl=False)
        return
    code = subprocess.run([sys.executable, script, *["--plain"] * is_plain], check=False).returncode
    ctx.exit(code if code >= 0 else 128 - code)


def _case(report: Report, asked: str) -> dict[str, Any]:
    """The one failing case that is meant."""
    every = {case["case"]: case for _, case in reading.cases(report)}
    if asked in every:
        return every[asked]
    of_clause = [case for case in every.values() if case["clause"] == asked.upper()]
    if not of_clause:
        raise Mistake(f"the report has no {asked}{nearest(asked, [*every, *(c['clause'] for c in every.values())])}")
    failing = [case for case in of_clause if case.get("reproducer")]
    if not failing:
        verdicts = ", ".join(dict.fromkeys(case["verdict"] for case in of_clause))
        raise Mistake(f"{asked} has no reproducer; its verdict is {verdicts}")
    if len(failing) > 1:
        raise Mistake(f"{asked} has several, name one: {', '.join(repr(case['case']) for case in failing)}")
    return failing[0]


def _script(report: pathlib.Path, case: dict[str, Any]) -> pathlib.Path:
    """The script's file, which lies beside its report or below."""
    if not case.get("reproducer"):
        raise Mistake(f"{case['case']} has no reproducer; its verdict is {case['verdict']}")
    script = (report.parent / str(case["reproducer"])).resolve()
    if not script.is_relative_to(report.parent.resolve()):
        raise Mistake(f"{case['case']}: the reproducer {case['reproducer']} lies outside of the report's folder")
    if not script.is_file():
        raise Mistake(f"{case['case']}: there is no file {printable(script)}")
    return script
