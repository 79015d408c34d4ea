"""`ckptspec baseline`: keeping a file of known failures up to date."""

from __future__ import annotations

import pathlib

import click

from ckptspec.conformance import baseline, baseline_update
from ckptspec.conformance.baseline import BaselineError, Known
from ckptspec.conformance.clause import registry
from ckptspec.conformance.command import reading
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report import model


@click.group()
def command() -> None:
    """Keep a baseline, the file of known failures, up to date.

    \b
    ckptspec baseline update reports/mylib/cpu mylib.toml
    """


@command.command()
@click.argument("report", type=click.Path(path_type=pathlib.Path))
@click.argument("file", type=click.Path(path_type=pathlib.Path, dir_okay=False))
@click.option("--prune", is_flag=True, help="Also remove the entries that hold for no case any more.")
def update(report: pathlib.Path, file: pathlib.Path, prune: bool) -> None:
    """Append an entry to FILE for each failure of REPORT that is unexpected and not yet in it, with the reason TODO.

    \b
    ckptspec baseline update reports/mylib/cpu mylib.toml
    ckptspec run --adapter=mylib_adapter.py:adapter --baseline=mylib.toml

    A run refuses FILE until each TODO is replaced by a reason. Entries that no longer hold are listed, and removed with
    --prune; nothing else in FILE is touched. Failures on a device other than cpu are entered for that device only.
    """
    clauses, found = registry(), model.load(reading.path(report))
    text = baseline.read_text(file) if file.exists() else ""
    entries = baseline.entries(text, file, clauses)
    told = baseline_update.compare(entries, found)
    kept = entries
    if prune and told.stale:
        kept = [entry for number, entry in enumerate(entries) if number not in told.stale]
        pruned = baseline_update.pruned(text, told.stale)
        if baseline.entries(pruned, file, clauses) != kept:
            raise BaselineError(f"{file}: entries that are not written as [[known]] tables can't be removed from it")
        text = pruned
    new = baseline_update.compare(kept, found).new
    _list(entries, told.stale, "removed" if prune else "stale")
    _list(entries, told.doubtful, "holds for some of its cases only")
    if new or kept is not entries:
        text = baseline_update.appended(text, new)
        baseline.entries(text, file, clauses)
        model.write(file, text)
    click.echo(printable(f"{file}: {len(new)} new, {len(told.stale)} {'removed' if prune else 'stale'}"))
    if new:
        click.echo("replace each TODO by a reason")


def _list(entries: list[list[Known]], numbers: dict[int, str], what: str) -> None:
    for number, why in numbers.items():
        ids = ", ".join(dict.fromkeys(known.clause for known in entries[number]))
        click.echo(printable(f"entry {number + 1}, {ids}: {what}: {why}"))
