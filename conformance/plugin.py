"""The suite as a pytest plugin: options, selection, cases, the summary and the exit code.

The controller resolves the adapter, learns from a preflight what it offers, keeps the book and writes the report;
workers import the library and execute cases. Read `_Suite` from top to bottom: it follows a run.
"""

from __future__ import annotations

import datetime
import fnmatch
import functools
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Generator
from typing import Any

import pytest

import ckptspec.adapters
from ckptspec.conformance import baseline, gate, preflight, resolve
from ckptspec.conformance.backend import Adapter, Checkpointer, Host
from ckptspec.conformance.case import Record, deadline, execute, from_properties, of_node, to_property
from ckptspec.conformance.clause import FOLDER, Clause, by_name, registry
from ckptspec.conformance.explore import DEFAULT, Exploration
from ckptspec.conformance.isolation import LATE, Book, linger, threads
from ckptspec.conformance.processes import Recipe
from ckptspec.conformance.report import model, render
from ckptspec.conformance.under_test import collected
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

OPTIONS: dict[str, dict[str, Any]] = {
    "--adapter": {
        "metavar": "NAME",
        "help": "the implementation: a name, pkg.module:object, path.py:object, dropin:MODULE",
    },
    "--device": {"metavar": "DEVICE", "default": "cpu", "help": "where arrays live: cpu (default), cuda or sim"},
    "--report": {"metavar": "DIR", "help": "where the report is written (default: reports)"},
    "--clause": {"metavar": "GLOB", "action": "append", "default": [], "help": "only clauses whose id matches"},
    "--baseline": {"metavar": "FILE", "help": "known failures (default: the adapter's own, if it is one of ours)"},
    "--max-examples": {
        "metavar": "N",
        "type": int,
        "default": DEFAULT.examples,
        "help": f"programs that each FUZZ clause draws (default: {DEFAULT.examples})",
    },
    "--seed": {"metavar": "N", "type": int, "help": "draw other programs than the usual ones (FUZZ)"},
    "--case-timeout": {
        "metavar": "SECONDS",
        "type": float,
        "default": 60.0,
        "help": "for one case (default: 60; 0: none)",
    },
}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("ckptspec", "conformance of activation checkpointing")
    taken = {name for g in [*parser._groups, parser._anonymous] for option in g.options for name in option.names()}
    for name, settings in OPTIONS.items():
        if name not in taken:  # a user's own --device serves us as well
            group.addoption(name, **settings)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, object, object]:
    """Isolation is on unless -n0 or --pdb says otherwise, and no number of crashes ends it."""
    option = config.option
    if option.adapter is not None and hasattr(option, "numprocesses") and not hasattr(config, "workerinput"):
        if option.numprocesses is None and not option.tx and not option.usepdb:
            option.numprocesses = min(os.cpu_count() or 1, 4)
        if option.maxworkerrestart is None:
            option.maxworkerrestart = "1000000"
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    if config.option.help:
        return
    asked = [folder for argument in config.args if (folder := _suite_at(config, argument))]
    for folder in asked:
        if folder != FOLDER.resolve():
            raise pytest.UsageError(
                f"the clauses of {folder} were asked for, but ckptspec is installed from {FOLDER}:"
                " run `pytest --pyargs ckptspec.conformance`, or install the checkout with `pip install -e`"
            )
    if config.option.adapter is not None:
        config.pluginmanager.register(_Suite(config), "ckptspec-suite")
    elif asked:
        raise pytest.UsageError(f"--adapter=NAME is missing; there are: {', '.join(sorted(resolve.names()))}")


def _suite_at(config: pytest.Config, argument: str) -> pathlib.Path | None:
    """The folder of clauses that an argument of the command line names, or names something in; None for others."""
    name = argument.partition("::")[0]
    if name.startswith("ckptspec.conformance"):
        return FOLDER.resolve()
    path = (config.invocation_params.dir / name).resolve()
    folders = (path, path.parent)
    return next((f for f in folders if (f / "under_test.py").exists() and (f / "clause.py").exists()), None)


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    """Without an adapter, clauses are not among the tests of a wider folder."""
    return True if collection_path == FOLDER and config.option.adapter is None else None


def pytest_collect_directory(path: pathlib.Path, parent: pytest.Collector) -> pytest.Collector | None:
    """The chapters' folder is no package to pytest: it would import it under a second name."""
    return pytest.Dir.from_parent(parent, path=path) if path == FOLDER else None


def pytest_pycollect_makemodule(module_path: pathlib.Path, parent: pytest.Collector) -> pytest.Module | None:
    if module_path.parent != FOLDER:
        return None
    chapter: pytest.Module = _Chapter.from_parent(parent, path=module_path)
    return chapter


class _Chapter(pytest.Module):
    """A chapter, imported by its one name however it was asked for."""

    def _getobj(self) -> Any:
        return importlib.import_module(f"ckptspec.conformance.{self.path.stem}")


class _Suite:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.started = datetime.datetime.now(datetime.UTC)
        self.clauses = registry()
        self.is_worker = hasattr(config, "workerinput")
        self.threads = 0
        option = config.option
        self.wanted = [
            c for c in self.clauses if not option.clause or any(fnmatch.fnmatchcase(c, g) for g in option.clause)
        ]
        for glob in option.clause:
            if not fnmatch.filter(self.clauses, glob):
                raise pytest.UsageError(
                    f"--clause={glob} matches none of the {len(self.clauses)} clauses, {next(iter(self.clauses))} to"
                    f" {list(self.clauses)[-1]}; SPEC.md lists them"
                )
        if self.is_worker:
            sent = json.loads(config.workerinput["ckptspec"])  # type: ignore[attr-defined]
            self.source, self.description = resolve.Source(**sent["source"]), sent["description"]
        else:
            self._prepare(option)
        self.variants = list(self.description["variants"])
        self.known = self._baseline()
        self.is_isolated = not self.is_worker and bool(getattr(option, "numprocesses", None))
        self.book = Book(self.variants, option.case_timeout if self.is_isolated else 0)

    # -- before the first clause

    def _prepare(self, option: Any) -> None:
        """Everything that can be wrong with the command line is found here, in one line and exit code 4."""
        self.reports = pathlib.Path(self.config.invocation_params.dir, option.report or "reports")
        try:
            self.source = resolve.find(option.adapter, self.config.invocation_params.dir)
            self.description = preflight.describe(self.source, option.device)
            self.folder = self.reports / _safe(self.description["name"]) / _safe(option.device)
            model.prepare(self.folder)
        except (resolve.AdapterError, model.ReportError) as error:
            raise pytest.UsageError(str(error)) from None

    def _baseline(self) -> list[baseline.Known]:
        given = self.config.option.baseline
        if given:
            path = pathlib.Path(self.config.invocation_params.dir, given)
        else:
            ours = pathlib.Path(next(iter(ckptspec.adapters.__path__)), "baselines")
            path = ours / f"{_safe(self.source.asked)}.toml"
            if self.source.folder or not path.exists():
                return []
        try:
            return baseline.read(path, set(self.clauses), self.config.option.device, self.description["version"])
        except baseline.BaselineError as error:
            raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["ckptspec"] = json.dumps({"source": self.source.to_json(), "description": self.description})

    def pytest_report_header(self) -> str:
        found, host = self.description, self.description["host"]
        return (
            f"ckptspec: {found['name']} {found['version']} ({', '.join(self.variants)}) on {host['name']}"
            f" {host['version']}, {self.config.option.device}; {'isolated' if self.is_isolated else 'no isolation'}"
        )

    # -- collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        clause = by_name(metafunc.function.__name__)
        if clause is not None and clause.function is metafunc.function:
            metafunc.parametrize("under_test", self.variants, indirect=True, ids=self.variants)
            for name, values in clause.each.items():
                metafunc.parametrize(name, values, ids=[str(v) for v in values])

    @pytest.fixture
    def under_test(self, request: pytest.FixtureRequest) -> str:
        """The variant's name; the case itself is given an UnderTest when it is called."""
        return str(request.param)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        if loaded := [m for m in sys.modules if m.split(".")[0] == "conformance" and _is_ours(sys.modules[m])]:
            raise pytest.UsageError(f"the suite was imported a second time, as {loaded[0]}")
        wanted: list[pytest.Item] = []
        others: list[pytest.Item] = []
        for item in items:
            found = of_node(item.nodeid, self.variants)
            (others if found and found[0].id not in self.wanted else wanted).append(item)
        if others:
            items[:] = wanted
            config.hook.pytest_deselected(items=others)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not self.is_worker:
            self.book.selected = dict.fromkeys(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.book.selected = dict.fromkeys(ids)

    # -- cases

    @functools.cached_property
    def adapter(self) -> Adapter:
        with collected():
            return resolve.load(self.source)

    @functools.cache  # noqa: B019 - one suite a process
    def _variant(self, name: str) -> tuple[Host, Checkpointer]:
        host = self.adapter.host(self.config.option.device)
        return host, self.adapter.variants[name](host)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        found = of_node(pyfuncitem.nodeid, self.variants)
        if found is None:
            return None
        clause, variant, parameters = found
        chosen = {name: str(pyfuncitem.funcargs[name]) for name in clause.each}
        recipe = Recipe(self.source, self.config.option.device, variant, clause.id, chosen)
        limit = self.config.option.case_timeout if self.is_worker else 0
        with deadline(limit):
            host, checkpointer = self._variant(variant)
        self.threads = self.threads or threads()
        with deadline(limit):
            record, error = execute(
                clause,
                variant,
                parameters,
                recipe.run,
                host,
                checkpointer,
                self._how(clause, checkpointer),
            )
        pyfuncitem.user_properties.append(to_property(record))
        self._show(record, clause, error)
        return True

    def _how(self, clause: Clause, checkpointer: Checkpointer) -> Exploration:
        """How far FUZZ clauses go; a known failure, or a refusal of what is not offered, is not made smaller."""
        is_known = any(k.clause == clause.id for k in self.known)
        is_declared = checkpointer.capabilities.issuperset(clause.tests)
        option = self.config.option
        return Exploration(option.max_examples, option.seed, is_shrinking=is_declared and not is_known)

    def _show(self, record: Record, clause: Clause, error: BaseException | None) -> None:
        """Tell pytest what it should print; the exit code is decided at the end."""
        found, entry = gate.expectation(record, clause.level, self.known)
        if found is gate.Expectation.KNOWN and entry is not None:
            pytest.xfail(entry.reason)
        if found in (gate.Expectation.UNEXPECTED, gate.Expectation.STALE):
            if isinstance(error, Exception) and not isinstance(error, pytest.exit.Exception):
                raise error
            pytest.fail(gate.describe(record), pytrace=False)
        if found is gate.Expectation.NOTED:
            pytest.xfail(gate.describe(record))
        if record.verdict is not Verdict.PASS:
            pytest.skip(gate.describe(record))

    # -- the book

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.book.started(nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        if error:
            self.book.down(node)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        record = self.book.died(crashitem, report.node)
        if record is None:
            return
        found, entry = gate.expectation(record, self.clauses[record.clause].level, self.known)
        if found is not gate.Expectation.UNEXPECTED:
            report.outcome, report.wasxfail = "skipped", entry.reason if entry else gate.describe(record)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        worker = getattr(report, "node", None)
        if report.when == "setup" and worker is not None:
            self.book.ran(worker.gateway.id, report.nodeid)
        record = from_properties(report.user_properties)
        if report.when == "call" and record is not None:
            self.book.records[report.nodeid] = record
        elif report.failed and report.when in ("setup", "teardown") and report.nodeid not in self.book.records:
            found = of_node(report.nodeid, self.variants)
            if found is not None:
                clause, variant, parameters = found
                self.book.records[report.nodeid] = Record(
                    clause.id, variant, parameters, Verdict.ERROR, message=report.longreprtext[-500:]
                )

    # -- the end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        if self.is_worker and 0 < self.threads < threads():
            linger(LATE)
        result = yield
        if self.is_worker or exitstatus in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR):
            return result
        linger()
        if self.is_isolated:
            self.book.trace(self.config)
        records = self.book.all()
        is_whole = len({r.clause for r in records}) == len(self.clauses) and exitstatus != pytest.ExitCode.INTERRUPTED
        judged = gate.judge(records, self.clauses, self.known, is_whole=is_whole)
        if not records:
            judged.problems.append("no case was selected")
        try:
            where = self._write(records, judged, is_whole)
        except model.ReportError as error:
            judged.problems.append(str(error))
            where = None
        self._summarise(records, judged, where)
        if exitstatus != pytest.ExitCode.INTERRUPTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if judged.problems else pytest.ExitCode.OK
        return result

    def _write(self, records: list[Record], judged: gate.Gate, is_whole: bool) -> pathlib.Path:
        """A run of some clauses never replaces the report of all of them."""
        report = model.build(
            description=self.description,
            source=self.source.to_json(),
            clauses=self.clauses,
            records=records,
            gate=judged,
            run={
                "device": self.config.option.device,
                "clauses": self.config.option.clause,
                "isolated": self.is_isolated,
                "complete": is_whole,
                "good": not judged.problems,
            },
            started=self.started,
        )
        path = self.folder / ("report.json" if is_whole else "partial.json")
        model.write(path, model.dump(report))
        if is_whole:
            model.write(self.reports / "README.md", render.matrix(self.reports))
        return path

    def _summarise(self, records: list[Record], judged: gate.Gate, where: pathlib.Path | None) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if terminal is None:
            return
        terminal.section("ckptspec", "=")
        for variant in self.variants:
            terminal.write_line(_line(self.description["name"], variant, records, judged))
        for note in judged.notes:
            terminal.write_line(f"  {note}")
        for problem in judged.problems:
            terminal.write_line(f"  ✗ {problem}", red=True)
        library = sum(r.library_seconds for r in records)
        cases = sum(r.seconds for r in records)
        terminal.write_line(f"cases: {cases:.1f} s, {1 - library / cases if cases else 0:.0%} of it the harness")
        if where is not None:
            terminal.write_line(f"report: {os.path.relpath(where, self.config.invocation_params.dir)}")
        if judged.problems:
            first = judged.problems[0].split(" ")[0].rstrip(":")
            first = first if first.partition("[")[0] in self.clauses else judged.problems[0]
            more = f" and {len(judged.problems) - 1} more" if len(judged.problems) > 1 else ""
            terminal.write_line(f"NOT AS EXPECTED: {first}{more}", red=True, bold=True)
        else:
            terminal.write_line("as expected", green=True, bold=True)


def _line(name: str, variant: str, records: list[Record], judged: gate.Gate) -> str:
    """One variant's outcome, in words for people."""
    verdicts = {clause: v for (of, clause), v in gate.by_clause(records).items() if of == variant}
    applicable = [v for v in verdicts.values() if v is not Verdict.NOT_APPLICABLE]
    known = dict.fromkeys(
        r.clause for r in records if r.variant == variant and judged.expectations[r.case] is gate.Expectation.KNOWN
    )
    parts = [f"{applicable.count(Verdict.PASS)} of {len(applicable)} clauses pass"]
    if known:
        parts.append(f"{len(known)} known failure{'s' * (len(known) > 1)}: {', '.join(known)}")
    if broken := [c for c, v in verdicts.items() if v in BROKEN | {Verdict.ERROR, Verdict.NOT_RUN} and c not in known]:
        parts.append(f"{len(broken)} other: {', '.join(broken)}")
    if declined := sum(v in DECLINED for v in verdicts.values()):
        parts.append(f"{declined} declined")
    if absent := len(verdicts) - len(applicable):
        parts.append(f"{absent} not applicable")
    return f"{name} {variant}: {'; '.join(parts)}"


def _safe(name: str) -> str:
    """A name as the name of a file."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "unnamed"


def _is_ours(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and pathlib.Path(path).parent == FOLDER
