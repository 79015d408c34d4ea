"""What subcommands say: safe text, tables, and mistakes.

rich draws where stdout is a terminal; anywhere else the same rows are plain lines, a tab between cells. Text of an
implementation is made `printable` first.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ckptspec.conformance.printable import line

LIMIT = 2000
"""Characters of a line that are shown."""


class Mistake(click.ClickException):
    """What was asked for can't be done: one line that says what was asked, and what there is. Exit code 2."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(line(message, LIMIT))


def nearest(asked: str, there: Iterable[str]) -> str:
    """`; nearest: A, B` to end a message with, or nothing."""
    by_folded = {name.casefold(): name for name in there}
    found = difflib.get_close_matches(asked.casefold(), by_folded, n=3, cutoff=0.5)
    return f"; nearest: {', '.join(by_folded[name] for name in found)}" if found else ""


def is_terminal() -> bool:
    return sys.stdout.isatty()


def console() -> Console:
    """A console on stdout that takes no text for markup."""
    return Console(markup=False, highlight=False, emoji=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows: drawn on a terminal, else a line each."""
    safe = [[line(cell, LIMIT) for cell in row] for row in rows]
    if not is_terminal():
        for row in safe:
            click.echo("\t".join(row))
        return
    drawn = Table(*columns, header_style="bold")
    for row in safe:
        drawn.add_row(*(Text(cell, COLOURS.get(cell.partition(" ")[0], "")) for cell in row))
    console().print(drawn)


#: What a cell is coloured by, besides its words.
COLOURS = {
    "PASS": "green", "fixed": "green", "improved": "green",
    "WRONG": "bold red", "CRASH": "bold red", "FAIL": "red", "TIMEOUT": "red", "ERROR": "red", "regressed": "bold red",
    "REFUSED": "yellow", "NOT_OFFERED": "yellow", "NOT_RUN": "yellow", "N/A": "dim",
}  # fmt: skip
