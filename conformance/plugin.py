"""The suite as a pytest plugin: options, and which files are chapters; a plan, a controller and a worker do the rest.

With isolation there is a worker a process, and the controller keeps the book; without it one process is both.
"""

from __future__ import annotations

import importlib
import os
import pathlib
from collections.abc import Generator
from typing import Any

import pytest

from ckptspec.conformance.baseline import BaselineError
from ckptspec.conformance.clause import FOLDER
from ckptspec.conformance.explore import DEFAULT
from ckptspec.conformance.printable import line
from ckptspec.conformance.report import summary
from ckptspec.conformance.report.model import ReportError
from ckptspec.conformance.report.output import Output
from ckptspec.conformance.running import resolve
from ckptspec.conformance.running.controller import Controller
from ckptspec.conformance.running.plan import Plan, file_name
from ckptspec.conformance.running.resolve import AdapterError
from ckptspec.conformance.running.selection import SelectionError
from ckptspec.conformance.running.worker import Worker

OPTIONS: dict[str, dict[str, Any]] = {
    "--adapter": {
        "metavar": "NAME",
        "help": "the implementation: a name, pkg.module:object, path.py:object, dropin:MODULE",
    },
    "--device": {"metavar": "DEVICE", "default": "cpu", "help": "where arrays live: cpu (default), cuda or sim"},
    "--report": {"metavar": "DIR", "help": "where the report is written (default: reports)"},
    "--clause": {"metavar": "GLOB", "action": "append", "default": [], "help": "only clauses whose id matches"},
    "--profile": {
        "metavar": "NAME,...",
        "action": "append",
        "default": [],
        "help": "only clauses of these profiles, of which no MUST clause may be declined",
    },
    "--baseline": {"metavar": "FILE", "help": "known failures (default: the adapter's own, if it is one of ours)"},
    "--summary": {"metavar": "FILE", "help": "append a summary in Markdown to a file, such as $GITHUB_STEP_SUMMARY"},
    "--max-examples": {
        "metavar": "N",
        "type": int,
        "default": DEFAULT.examples,
        "help": f"programs that each FUZZ clause draws (default: {DEFAULT.examples})",
    },
    "--seed": {"metavar": "N", "type": int, "help": "draw other programs than the usual ones (FUZZ)"},
    "--fuzz-database": {
        "metavar": "DIR",
        "help": "keep programs that fail, and try them first the next time; with -s, progress is shown (FUZZ)",
    },
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
        _register(config)
    elif asked:
        raise pytest.UsageError(f"--adapter=NAME is missing; there are: {', '.join(sorted(resolve.names()))}")


def _register(config: pytest.Config) -> None:
    """Everything that can be wrong with the command line is found here, in one line and exit code 4."""
    option, here = config.option, config.invocation_params.dir
    try:
        plan = Plan(config)
        if not plan.is_isolated:
            config.pluginmanager.register(Worker(plan), "ckptspec-worker")
        if not plan.is_worker:
            names = file_name(plan.description["name"]), file_name(option.device)
            output = Output(here / (option.report or "reports"), *names)
            if option.summary:
                summary.append(here / option.summary, "")
            config.pluginmanager.register(Controller(config, plan, output), "ckptspec-suite")
    except (SelectionError, AdapterError, BaselineError, ReportError) as error:
        raise pytest.UsageError(line(error, 2000)) from None


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
