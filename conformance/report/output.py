"""Where a run's report goes: report.json for a whole run, partial.json for another, running.json while it goes on.

A run that is killed leaves running.json behind: a report of what was known by then, marked as not complete. Nothing
else than a whole run replaces report.json.
"""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
import time
from collections.abc import Callable

from ckptspec.conformance.report import model, render
from ckptspec.conformance.report.lock import locked
from ckptspec.conformance.report.model import Report, ReportError

SHARE = 50
"""Saving takes at most one part in so many of a run's time."""


class Output:
    """The folder of a run's report, which is this run's alone until `close`.

    Raises ReportError if it can't be written, or if another run is writing to it.
    """

    def __init__(self, reports: pathlib.Path, name: str, device: str) -> None:
        self.reports = reports
        self.folder = reports / name / device
        self.running = self.folder / "running.json"
        self._due = 0.0
        self._held = contextlib.ExitStack()
        model.prepare(self.folder)
        self._held.enter_context(locked(self.folder))

    def close(self) -> None:
        self._held.close()

    def save(self, make: Callable[[], Report]) -> None:
        """Write the report so far, if it is time to."""
        start = time.monotonic()
        if start < self._due:
            return
        with contextlib.suppress(ReportError):  # the end of the run tells
            model.write(self.running, model.dump(make()))
        self._due = time.monotonic() + SHARE * (time.monotonic() - start)

    def write(self, report: Report) -> pathlib.Path:
        """Write the report of a run that is over, and what is drawn from all reports.

        Raises ReportError. A report that can't be written where it should be is then in a temporary folder.
        """
        is_whole = report["run"]["complete"]
        path, text = self.folder / ("report.json" if is_whole else "partial.json"), model.dump(report)
        try:
            model.write(path, text)
        except ReportError as error:
            spare = pathlib.Path(tempfile.gettempdir(), f"ckptspec-{time.time_ns()}.json")
            model.write(spare, text)
            raise ReportError(f"{error}; it is in {spare}") from error
        self.running.unlink(missing_ok=True)
        if is_whole:
            with locked(self.reports, is_patient=True):
                render.draw(self.reports)
        return path
