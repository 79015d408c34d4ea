"""`ckptspec render`: the matrix and the web page of a folder of reports."""

from __future__ import annotations

import pathlib

import click

from ckptspec.conformance.command import reading
from ckptspec.conformance.command.console import Mistake
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report import render
from ckptspec.conformance.report.model import load_all


@click.command()
@click.argument(
    "folder", default=reading.DEFAULT, type=click.Path(path_type=pathlib.Path, exists=True, file_okay=False)
)
def command(folder: pathlib.Path) -> None:
    """Write README.md and index.html of a folder of reports (default: reports) from the report.json files in it.

    \b
    ckptspec render reports
    """
    whole, left_out = load_all(folder)
    if not whole and not left_out:
        raise Mistake(f"there is no report in {folder}, no <adapter>/<device>/report.json")
    render.draw(folder)
    count = f"{len(whole)} of {len(whole) + len(left_out)} reports"
    click.echo(printable(f"wrote {folder / 'README.md'} and {folder / 'index.html'}: {count}"))
    for line in left_out:
        click.echo(printable(f"left out: {line}"))
