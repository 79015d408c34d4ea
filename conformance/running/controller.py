"""The part of a run that keeps the book: what came of every case, the report, the last line and the exit code.

It never imports the library. Read it from top to bottom: it follows a run.
"""

from __future__ import annotations

import contextlib
import datetime
import threading
from collections.abc import Callable, Generator
from typing import Any

import pytest

from ckptspec.conformance import gate
from ckptspec.conformance.case import PROPERTY, Record, from_properties, of_node
from ckptspec.conformance.printable import line
from ckptspec.conformance.report import model, summary
from ckptspec.conformance.report.output import Output
from ckptspec.conformance.reproducer import writing
from ckptspec.conformance.running import closing
from ckptspec.conformance.running.error_output import printable_errors
from ckptspec.conformance.running.isolation import STILLBORN, Book, linger, process_of
from ckptspec.conformance.running.plan import Plan
from ckptspec.conformance.verdict import Verdict


class Controller:
    def __init__(self, config: pytest.Config, plan: Plan, output: Output) -> None:
        self.config = config
        self.plan = plan
        self.output = output
        self.started = datetime.datetime.now(datetime.UTC)
        self.book = Book(plan.variants, plan.option.case_timeout if plan.is_isolated else 0)
        self.stopped = ""
        self.is_interrupted = False
        self.other_failures: set[str] = set()
        self.is_over = threading.Event()
        self.held = contextlib.ExitStack()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        if self.plan.is_isolated:
            self.held.enter_context(printable_errors())

    def pytest_report_header(self) -> str:
        found, host = self.plan.description, self.plan.description["host"]
        return line(
            f"ckptspec: {found['name']} {found['version']} ({', '.join(self.plan.variants)}) on {host['name']}"
            f" {host['version']}, {self.plan.option.device}; {'isolated' if self.plan.is_isolated else 'no isolation'}"
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["ckptspec"] = self.plan.for_workers()

    # -- what was selected

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.book.selected = dict.fromkeys(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.book.selected = dict.fromkeys(ids)

    # -- what came of it

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.book.started(nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodeready(self, node: Any) -> None:
        threading.Thread(target=self._watch, args=(node,), daemon=True).start()

    def _watch(self, node: Any) -> None:
        """End a worker that does not end itself: an implementation can switch its alarm off."""
        process = process_of(node)
        while process is not None and process.poll() is None and not self.is_over.wait(1.0):
            if self.book.is_overdue(node.gateway.id):
                process.kill()

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self.book.down(node)
        if self.book.stillborn == STILLBORN:
            how = self.book.ended[node.gateway.id]
            self.stopped = f"{STILLBORN} workers in a row ended before their first case, the last with {how}"
            raise pytest.Session.Interrupted(self.stopped)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        record = self.book.died(crashitem, report.node)
        if record is not None:
            self._describe_death(report, record)

    def _describe_death(self, report: pytest.TestReport, record: Record) -> None:
        path, _, name = report.nodeid.partition("::")
        report.when, report.location, report.longrepr = "call", (path, None, name), gate.describe(record)
        found, entry = self.plan.expectation(record)
        if found is not gate.Expectation.UNEXPECTED:
            report.outcome, report.wasxfail = "skipped", entry.reason if entry else gate.describe(record)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> Generator[None, object, object]:
        worker = getattr(report, "node", None)
        if report.when == "setup" and worker is not None:
            self.book.ran(worker.gateway.id, report.nodeid)
        self._enter(report)
        record = self.book.records.get(report.nodeid)
        if record is not None:
            # For JUnit XML: words for people in the place of the whole record.
            others = [(name, value) for name, value in report.user_properties if name != PROPERTY]
            report.user_properties = [*others, *self._properties(record)]
        result = yield
        if record is not None and record.verdict in (Verdict.CRASH, Verdict.TIMEOUT) and report.when == "call":
            self._close(report)
        self._save()
        return result

    def _enter(self, report: pytest.TestReport) -> None:
        """Enter what came of a case into the book."""
        record = from_properties(report.user_properties)
        if report.when == "call" and record is not None:
            self.book.records[report.nodeid] = record
        elif report.failed and report.nodeid not in self.book.records:
            found = of_node(report.nodeid, self.plan.variants)
            if found is None:
                self.other_failures.add(report.nodeid)
            else:
                clause, variant, parameters = found
                message = report.longreprtext[-500:]
                self.book.records[report.nodeid] = Record(
                    clause.id, variant, parameters, Verdict.ERROR, message=message
                )

    def _properties(self, record: Record) -> list[tuple[str, object]]:
        found, _ = self.plan.expectation(record)
        return [
            ("clause", record.clause),
            ("level", self.plan.clauses[record.clause].level.value),
            ("verdict", record.verdict.value),
            ("expectation", found.value),
            ("label", line(record.label or record.exception or record.signal)),
        ]

    def _close(self, report: pytest.TestReport) -> None:
        """Tell that a case whose process died is over, as the process would have: JUnit XML waits for it."""
        over = pytest.TestReport(report.nodeid, report.location, {}, "passed", None, "teardown")
        over.__dict__["node"] = getattr(report, "node", None)
        self.config.hook.pytest_runtest_logreport(report=over)

    # -- the end

    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        # By a person; subclasses of KeyboardInterrupt tell that --maxfail is reached, for example.
        self.is_interrupted = type(excinfo.value) in (KeyboardInterrupt, pytest.exit.Exception)
        if self.is_interrupted:
            self.stopped = f"interrupted: {line(excinfo.exconly())}"

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        if exitstatus in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR) or self.plan.option.collectonly:
            return (yield)
        linger()
        for nodeid in self.book.trace(self.config) if self.plan.is_isolated else ():
            self._tell_of_late_death(nodeid)
        result, trouble = None, []
        try:
            result = yield
        except Exception as error:  # of another plugin, whose file can't be written for example
            trouble.append(f"{type(error).__name__} at the end of the run: {error}")
        self.is_over.set()
        self.held.close()
        self._conclude(session, trouble)
        return result

    def _tell_of_late_death(self, nodeid: str) -> None:
        report = pytest.TestReport(nodeid, ("", None, ""), {}, "failed", None, "call")
        self._describe_death(report, self.book.records[nodeid])
        self.config.hook.pytest_runtest_logreport(report=report)

    def _conclude(self, session: pytest.Session, trouble: list[str]) -> None:
        """Write the report, and say how the run ended."""
        records = self._records()
        judged, is_whole = self.plan.judge(records), self.plan.is_everything(records)
        judged.problems[:0] = filter(None, [self.stopped])
        judged.problems += filter(None, [gate.vacuous(records, is_whole=is_whole)])
        judged.problems += [
            f"{line(test)} failed, which is no clause" for test in sorted(self.other_failures)
        ] + trouble
        limit = self.plan.option.case_timeout
        scripts, troubles = writing.scripts(records, self.plan.clauses, self.plan.description, limit)
        judged.notes += troubles
        places = writing.places(scripts, is_whole=is_whole)
        report = self._report(records, judged, is_complete=is_whole, reproducers=places)
        _try(judged, lambda: writing.write(self.output.folder, scripts, places, is_whole=is_whole))
        where = _try(judged, lambda: self.output.write(report))
        self.output.close()
        if self.plan.option.summary:
            text = summary.markdown(report, gate.conclusion(judged, self.plan.selection.said), judged.problems)
            _try(judged, lambda: summary.append(self.plan.folder / self.plan.option.summary, text))
        closing.say(self.config, self.plan, records, judged, where)
        if judged.problems:
            code = pytest.ExitCode.INTERRUPTED if self.is_interrupted else pytest.ExitCode.TESTS_FAILED
            session.exitstatus = code
        elif session.exitstatus in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.OK  # what failed was expected to

    def _records(self) -> list[Record]:
        """A record for every case that was selected, in the order of the specification."""
        records = self.book.all()
        seen = {record.case for record in records}
        records += [record for record in self.plan.cases() if record.case not in seen]
        order = {id: number for number, id in enumerate(self.plan.clauses)}
        return sorted(records, key=lambda record: (order[record.clause], record.case))

    def _save(self) -> None:
        def make() -> model.Report:
            records = self._records()
            return self._report(records, self.plan.judge(records), is_complete=False, reproducers={})

        self.output.save(make)

    def _report(
        self, records: list[Record], judged: gate.Gate, *, is_complete: bool, reproducers: dict[str, str]
    ) -> model.Report:
        return model.build(
            description=self.plan.description,
            source=self.plan.source.to_json(),
            clauses=self.plan.clauses,
            records=records,
            gate=judged,
            run=self.plan.said() | {"complete": is_complete, "good": not judged.problems},
            started=self.started,
            reproducers=reproducers,
        )


def _try(judged: gate.Gate, write: Callable[[], Any]) -> Any:
    """What cannot be written is a problem of the run, and keeps nothing else from being written."""
    try:
        return write()
    except (model.ReportError, OSError) as error:
        judged.problems.append(str(error))
        return None
