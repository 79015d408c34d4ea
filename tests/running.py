"""Runs the suite as a user does, in a process of its own, and reads what came of it."""

from __future__ import annotations

import fcntl
import functools
import os
import pathlib
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ckptspec.conformance.report import model

CHECKOUT = pathlib.Path(__file__).parents[1]
TAPE = "tests/tape.py:adapter"


@dataclass(frozen=True)
class Outcome:
    """What a run left: exit code, process id of its controller, output, and the folder of its reports."""

    code: int
    pid: int
    output: str
    folder: pathlib.Path

    @functools.cached_property
    def path(self) -> pathlib.Path:
        """The one report that was written."""
        (path,) = [p for p in self.folder.glob("*/*/*.json") if p.name in ("report.json", "partial.json")]
        return path

    @functools.cached_property
    def report(self) -> dict[str, Any]:
        return model.load(self.path)

    @functools.cached_property
    def cases(self) -> dict[str, dict[str, Any]]:
        return {case["case"]: case for clause in self.report["clauses"] for case in clause["cases"]}

    @property
    def verdicts(self) -> dict[str, str]:
        return {name: case["verdict"] for name, case in self.cases.items()}

    @property
    def errors(self) -> list[str]:
        """The lines by which pytest says that the command line is wrong."""
        return [line for line in self.output.splitlines() if line.startswith("ERROR: ")]

    @property
    def last_line(self) -> str:
        return self.output.strip().splitlines()[-1]


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[pathlib.Path], Outcome]) -> Outcome:
    """An outcome that several tests look at, made by the first of the workers that asks for it."""
    shared = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    path = shared / f"{name}.pickle"
    with open(shared / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_bytes(pickle.dumps(make(shared / name)))
    outcome: Outcome = pickle.loads(path.read_bytes())
    return outcome


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what pytest has added."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")} | changes


@dataclass(frozen=True)
class Suite:
    """Runs `pytest conformance` in the checkout; reports go to a folder of the test's own."""

    folder: pathlib.Path

    def __call__(self, *arguments: str, adapter: str | None = TAPE, **variables: str) -> Outcome:
        command = [sys.executable, "-m", "pytest", "conformance", "-p", "no:cacheprovider", *arguments]
        if adapter is not None:
            command.append(f"--adapter={adapter}")
        if not any(a.startswith("--report") for a in arguments):
            command.append(f"--report={self.folder}")
        return run(command, CHECKOUT, self.folder, **variables)


def run(command: list[str], directory: pathlib.Path, folder: pathlib.Path, **variables: str) -> Outcome:
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment(**variables),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        output, _ = process.communicate(timeout=300)
    return Outcome(process.returncode, process.pid, output.decode(errors="replace"), folder)
