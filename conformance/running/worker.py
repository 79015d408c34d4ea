"""The part of a run that imports the library and executes cases: in workers, or without isolation in the one process.

Read it from top to bottom: collection, one case, what pytest is told of it.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import stat
import sys
import threading
from collections.abc import Generator
from typing import Any

import pytest

from ckptspec.conformance import gate
from ckptspec.conformance.backend import Adapter, Checkpointer, Host
from ckptspec.conformance.case import Record, deadline, execute, of_node, to_property
from ckptspec.conformance.clause import FOLDER, Clause, by_name
from ckptspec.conformance.explore import Exploration
from ckptspec.conformance.printable import all_printable, printable
from ckptspec.conformance.processes import Recipe
from ckptspec.conformance.running import resolve
from ckptspec.conformance.running.isolation import LATE, linger, threads
from ckptspec.conformance.running.plan import Plan
from ckptspec.conformance.under_test import collected
from ckptspec.conformance.verdict import Verdict


class Worker:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.threads = 0

    def pytest_sessionstart(self) -> None:
        # What a thread or a finalizer raises after its case belongs to no other case.
        threading.excepthook = sys.unraisablehook = _unheard
        if self.plan.is_worker:
            # The controller knows that this process has died when nobody holds the other ends of its pipes any more.
            os.register_at_fork(after_in_child=functools.partial(_close, _pipes()))

    # -- collection

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        clause = by_name(metafunc.function.__name__)
        if clause is not None and clause.function is metafunc.function:
            metafunc.parametrize("under_test", self.plan.variants, indirect=True, ids=self.plan.variants)
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
            found = of_node(item.nodeid, self.plan.variants)
            (others if found and found[0].id not in self.plan.selection.clauses else wanted).append(item)
        if others:
            items[:] = wanted
            config.hook.pytest_deselected(items=others)

    # -- cases

    @functools.cached_property
    def adapter(self) -> Adapter:
        with collected():
            return resolve.load(self.plan.source)

    @functools.cache  # noqa: B019 - one a process
    def _variant(self, name: str) -> tuple[Host, Checkpointer]:
        host = self.adapter.host(self.plan.option.device)
        return host, self.adapter.variants[name](host)

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool | None:
        found = of_node(pyfuncitem.nodeid, self.plan.variants)
        if found is None:
            return None
        clause, variant, parameters = found
        option = self.plan.option
        chosen = {name: str(pyfuncitem.funcargs[name]) for name in clause.each}
        recipe = Recipe(self.plan.source, option.device, variant, clause.id, chosen)
        limit = option.case_timeout if self.plan.is_worker else 0
        with deadline(limit):
            host, checkpointer = self._variant(variant)
        self.threads = self.threads or threads()
        exploration = self._exploration(clause, checkpointer)
        with deadline(limit):
            record, error = execute(clause, variant, parameters, recipe.run, host, checkpointer, exploration)
        if isinstance(error, KeyboardInterrupt) and not self.plan.is_worker:
            raise error  # without isolation it is a person's
        pyfuncitem.user_properties.append(to_property(record))
        self._show(record, error)
        return True

    def _exploration(self, clause: Clause, checkpointer: Checkpointer) -> Exploration:
        """How far FUZZ clauses go; a known failure, or a refusal of what is not offered, is not made smaller."""
        is_known = any(k.clause == clause.id for k in self.plan.known)
        is_declared = checkpointer.capabilities.issuperset(clause.tests)
        option = self.plan.option
        return Exploration(
            option.max_examples,
            option.seed,
            is_shrinking=is_declared and not is_known,
            database=option.fuzz_database and str(self.plan.folder / option.fuzz_database),
            name=clause.id if option.fuzz_database else "",
        )

    def _show(self, record: Record, error: BaseException | None) -> None:
        """Tell pytest what it should print; the exit code is decided at the end."""
        found, entry = self.plan.expectation(record)
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

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What an implementation says and prints goes to no terminal as it is."""
        report = yield
        if of_node(item.nodeid, self.plan.variants):
            report.longrepr = all_printable(report.longrepr)
            report.sections = [(name, printable(text)) for name, text in report.sections]
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Die, if something is going to, while the controller still listens."""
        if self.plan.is_worker and 0 < self.threads < threads():
            linger(LATE)
        return (yield)


def _unheard(_: object) -> None:
    pass


def _pipes() -> list[int]:
    """The pipes of this process, the standard streams aside."""
    found = []
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the listing itself is closed again
            if number > 2 and stat.S_ISFIFO(os.fstat(number).st_mode):
                found.append(number)
    return found


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def _is_ours(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and pathlib.Path(path).parent == FOLDER
