"""Crashes and hangs: workers only die, the controller keeps the book.

xdist replaces a dead worker and goes on; what remains is to say whose fault it was. A thread can abort the process
after its case has ended, so that the next case is accused: the accused is run again alone, and if it survives there,
the cases that ran before it on the same worker are tried, latest first.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import pytest

from ckptspec.conformance.case import Record, of_node
from ckptspec.conformance.verdict import Observed, Verdict, conclude

LINGER = "CKPTSPEC_LINGER"
"""Environment: seconds that a run waits at its end, so that a late abort still happens in it."""

LATE = 1.0
"""Seconds that a worker waits at its end if cases have left threads behind."""

ALONE = 120.0
"""Seconds that a case which is run alone may take besides its own limit: for the preflight and the library's import."""

GRACE = 5.0
"""Seconds until a worker is killed that has not ended itself when its case took too long."""

STILLBORN = 3
"""Workers that end one after the other before their first case, until a run gives up."""

SUSPECTS = 12
"""How many earlier cases are tried before a late abort is left unexplained."""


class Book:
    """What the controller knows of every case: when and where it started, and what came of it."""

    def __init__(self, variants: list[str], limit: float) -> None:
        self.variants = variants
        self.limit = limit
        self.records: dict[str, Record] = {}
        self.selected: dict[str, None] = {}
        self.dead: list[tuple[str, str]] = []
        self.ended: dict[str, str] = {}
        self.stillborn = 0
        self._started: dict[str, float] = {}
        self._ran: dict[str, list[str]] = collections.defaultdict(list)

    def started(self, nodeid: str) -> None:
        self._started[nodeid] = time.monotonic()

    def ran(self, worker: str, nodeid: str) -> None:
        self._ran[worker].append(nodeid)

    def down(self, worker: Any) -> None:
        """Enter that a worker's process ended before its time; `died` follows if a case was running."""
        self.ended[worker.gateway.id] = ending(worker)
        self.stillborn = 0 if self._ran[worker.gateway.id] else self.stillborn + 1

    def died(self, nodeid: str, worker: Any) -> Record | None:
        """Enter a case during which its worker died."""
        self.ended.pop(worker.gateway.id, None)
        seconds = time.monotonic() - self._started.get(nodeid, time.monotonic())
        is_hung = self.limit > 0 and seconds >= self.limit - 0.5
        record = _dead(nodeid, self.variants, ending(worker), seconds, Observed.HUNG if is_hung else Observed.DIED)
        if record is not None:
            self.records[nodeid] = record
            if not is_hung:
                self.dead.append((worker.gateway.id, nodeid))
        return record

    def is_overdue(self, worker: str) -> bool:
        """Whether a worker's case, the library's import included, lasts longer than the worker should have allowed."""
        line = self._ran[worker]
        if not line or self.limit <= 0 or line[-1] in self.records:
            return False
        return time.monotonic() - self._started[line[-1]] > 2 * self.limit + GRACE

    def trace(self, config: pytest.Config) -> list[str]:
        """Find the guilty of every crash: run the accused alone, then those who ran before it on its worker.

        Returns the cases that are found guilty of a death which came after them.
        """
        blamed = []
        for worker, accused in self.dead:
            alone = _alone(config, accused)
            if alone is None:
                continue
            line = self._ran[worker]
            guilty = self._guilty(config, line[: line.index(accused)] if accused in line else line)
            # If nobody dies alone, the accused stays accused, which is better than to forget a crash.
            if guilty is not None:
                self._blame(guilty, self.records[accused].signal)
                self.records[accused] = alone
                blamed.append(guilty)
        for worker, signal_name in self.ended.items():
            if line := self._ran[worker]:
                blamed.append(self._guilty(config, line) or line[-1])
                self._blame(blamed[-1], signal_name)
        return blamed

    def _guilty(self, config: pytest.Config, suspects: list[str]) -> str | None:
        """The latest of the suspects that dies when it is run alone."""
        return next((s for s in suspects[: -SUSPECTS - 1 : -1] if _alone(config, s) is None), None)

    def _blame(self, nodeid: str, signal_name: str) -> None:
        """Enter a death that came after the case which caused it."""
        record = _dead(nodeid, self.variants, signal_name, 0.0, Observed.DIED)
        if record is not None:
            record.message = f"the process ended with {signal_name} after the case had ended"
            self.records[nodeid] = record

    def all(self) -> list[Record]:
        """A record for every selected case, NOT_RUN for those of which nothing is known."""
        missing = []
        for nodeid in self.selected:
            if nodeid not in self.records and (found := of_node(nodeid, self.variants)):
                clause, variant, parameters = found
                missing.append(Record(clause.id, variant, parameters, Verdict.NOT_RUN))
        return [*self.records.values(), *missing]


def process_of(worker: Any) -> subprocess.Popen[bytes] | None:
    """A worker's process, if execnet tells it."""
    process: subprocess.Popen[bytes] | None = getattr(getattr(worker.gateway, "_io", None), "popen", None)
    return process


def ending(worker: Any) -> str:
    """How a dead worker's process ended: the name of its signal, or its exit code if it is known."""
    process = process_of(worker)
    try:
        code = process.wait(5) if process is not None else None
    except subprocess.TimeoutExpired:
        code = None
    return signal.Signals(-code).name if code is not None and code < 0 else f"exit {code}"


def _dead(nodeid: str, variants: list[str], name: str, seconds: float, observed: Observed) -> Record | None:
    """The record of a case that ended its process in the way named."""
    found = of_node(nodeid, variants)
    if found is None:
        return None
    clause, variant, parameters = found
    return Record(
        clause.id,
        variant,
        parameters,
        conclude(observed, is_declared=True),
        signal=name if observed is Observed.DIED else "",
        message=f"the process ended with {name}" if observed is Observed.DIED else "the case did not end in time",
        seconds=seconds,
    )


def _alone(config: pytest.Config, nodeid: str) -> Record | None:
    """The record of a case that is run in a process of its own; None if that process dies or hangs."""
    path, _, name = nodeid.partition("::")
    target = os.path.normpath(config.rootpath / path) + "::" + name
    with tempfile.TemporaryDirectory() as folder:
        arguments = [
            *(target, "-n0", "-q", "-p", "no:cacheprovider", f"--rootdir={config.rootpath}", f"--report={folder}"),
            f"--adapter={config.option.adapter}",
            f"--device={config.option.device}",
            f"--case-timeout={config.option.case_timeout}",
            *(f"--junitxml={folder}/alone.xml", f"--summary={folder}/alone.md"),  # and not where the run's own go
        ]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-m", "pytest", *arguments],
                cwd=config.invocation_params.dir,
                env=os.environ | {LINGER: "1"},
                stdout=subprocess.DEVNULL,  # no pipe: a process that the case leaves behind would keep it open
                stderr=subprocess.DEVNULL,
                check=False,
                timeout=config.option.case_timeout + ALONE if config.option.case_timeout else None,
            )
        reports = [path for path in pathlib.Path(folder).glob("*/*/*.json") if path.name != "running.json"]
        if not reports:
            return None
        cases = [case for clause in json.loads(reports[0].read_text())["clauses"] for case in clause["cases"]]
    return Record.from_json(
        {k: v for k, v in cases[0].items() if k not in ("expectation", "reason", "link", "reproducer")}
    )


def threads() -> int:
    """How many threads this process has, those of other languages included."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return threading.active_count()


def linger(seconds: float = 0.0) -> None:
    """Wait, so that a late abort still happens in this process."""
    time.sleep(max(seconds, float(os.environ.get(LINGER, "0"))))
