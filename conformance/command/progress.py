"""In the process of the suite, a pytest plugin: tells through a pipe what came of each case, and prints no dots."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from typing import Any, TextIO

import pytest

PIPE = "CKPTSPEC_PROGRESS"
"""Environment: the file descriptor to write to, one JSON object a line."""


def pytest_configure(config: pytest.Config) -> None:
    if PIPE in os.environ and not hasattr(config, "workerinput"):
        descriptor = int(os.environ.pop(PIPE))
        os.set_inheritable(descriptor, False)
        config.pluginmanager.register(_Teller(config, os.fdopen(descriptor, "w")))


class _Teller:
    def __init__(self, config: pytest.Config, pipe: TextIO) -> None:
        self.config = config
        self.pipe = pipe

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """The pipe tells what the dots would."""
        category, letter, word = yield
        return category, letter if self.config.get_verbosity() >= 0 else "", word

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite: Any = self.config.pluginmanager.get_plugin("ckptspec-suite")
        if suite is not None and (record := suite.book.records.get(report.nodeid)):
            told = {"case": record.case, "verdict": record.verdict, "selected": len(suite.book.selected)}
            self.pipe.write(json.dumps(told) + "\n")
            self.pipe.flush()
