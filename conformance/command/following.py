"""A run of pytest in a process of its own, shown while it runs.

The process tells through a pipe what came of each case (progress.py). From it a bar and a count are drawn where stdout
is a terminal, else a line is printed now and then. What pytest says follows as it comes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TextIO

import click
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ckptspec.conformance.command import progress
from ckptspec.conformance.command.console import console, is_terminal
from ckptspec.conformance.printable import printable
from ckptspec.conformance.verdict import Verdict

EVERY = 5.0
"""Seconds between two lines that say how far a run is."""

LATE = 2.0
"""Seconds that a process which a library has left behind can hold the output open after the run."""


def follow(pytest: list[str]) -> int:
    """Run pytest, with `progress` as a plugin, and show what comes. Returns its exit code.

    An interrupt is for pytest, which writes its report and ends.
    """
    read, write = os.pipe()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    process = subprocess.Popen(
        pytest,
        env=os.environ | {progress.PIPE: str(write)},
        pass_fds=[write],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    os.close(write)
    try:
        with _Count() as count:
            readers = [
                threading.Thread(target=count.enter, args=[os.fdopen(read)], daemon=True),
                threading.Thread(target=count.repeat, args=[process.stdout], daemon=True),
            ]
            for reader in readers:
                reader.start()
            process.wait()
            for reader in readers:
                reader.join(LATE)
        return process.returncode
    finally:
        signal.signal(signal.SIGINT, before)


def _dense(lines: Iterable[str]) -> Iterator[str]:
    """The lines without what xdist says while it starts, and one empty line for several."""
    before = ""
    for line in map(str.rstrip, lines):
        if (line or before) and not line.startswith("bringing up nodes"):
            yield line
            before = line


class _Count:
    """How many cases came out how, as a bar or as lines."""

    def __init__(self) -> None:
        self.verdicts: dict[str, Verdict] = {}
        self.selected = 0
        self.told = time.monotonic()
        columns = BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
        self.bar = Progress(*columns, console=console(), transient=True) if is_terminal() else None
        self.task = self.bar.add_task("", total=None) if self.bar else None

    def __enter__(self) -> _Count:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def enter(self, pipe: TextIO) -> None:
        """Read what came of cases, to the end."""
        with pipe:
            for line in pipe:
                told = json.loads(line)
                self.verdicts[told["case"]], self.selected = Verdict(told["verdict"]), told["selected"]
                self.show()

    def repeat(self, output: TextIO) -> None:
        """Print the lines of pytest, above the bar if there is one."""
        with output:
            for line in map(printable, _dense(output)):
                if self.bar:
                    self.bar.console.print(line, soft_wrap=True)
                else:
                    click.echo(line)

    def show(self) -> None:
        if self.bar and self.task is not None:
            self.bar.update(self.task, completed=len(self.verdicts), total=self.selected, description=str(self))
        elif time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            click.echo(f"{len(self.verdicts)} of {self.selected}: {self}")

    def __str__(self) -> str:
        counts = Counter(self.verdicts.values())
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
