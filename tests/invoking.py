"""Runs `ckptspec` in this process, on reports that are made of a few records."""

from __future__ import annotations

import contextlib
import datetime
import os
import pathlib
import pty
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from click.testing import CliRunner, Result
from running import environment

from ckptspec.conformance.baseline import Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import registry
from ckptspec.conformance.command.group import ckptspec as group
from ckptspec.conformance.gate import judge
from ckptspec.conformance.report import model
from ckptspec.conformance.verdict import Verdict

COMMAND = (sys.executable, "-m", "ckptspec.conformance.command")
"""`ckptspec` in a process of its own."""


def ckptspec(*arguments: object) -> Result:
    """What a subcommand says and exits with. An exception that it does not turn into a message is raised."""
    result = CliRunner().invoke(group, [str(a) for a in arguments], prog_name="ckptspec")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def refused(*arguments: object) -> str:
    """The one line by which a mistake is told."""
    result = ckptspec(*arguments)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    return line.removeprefix("Error: ")


def on_terminal(*command: object, directory: pathlib.Path) -> tuple[int, str]:
    """The exit code of a process whose output is a terminal, and what it writes there."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [str(part) for part in command],
        cwd=directory,
        env=environment(TERM="xterm-256color", COLUMNS="120"),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as process:
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while data := os.read(ours, 65536):
                written += data
        os.close(ours)
    return process.returncode, written.decode()


def record(clause: str, verdict: Verdict, label: str = "", variant: str = "only", parameters: str = "") -> Record:
    return Record(clause, variant, parameters, verdict, label=label, message=label)


def report(
    *records: Record,
    variants: Iterable[str] = ("only",),
    name: str = "mylib",
    device: str = "cpu",
    known: list[Known] | None = None,
    is_complete: bool = True,
) -> model.Report:
    """A report as a run builds it."""
    clauses = registry()
    judged = judge(records, clauses, known or [], is_whole=is_complete)
    return model.build(
        description={
            "name": name,
            "version": "1",
            "host": {"name": "host", "version": "2", "facts": ["EAGER"]},
            "variants": {variant: ["KEYWORDS"] for variant in variants},
            "environment": {"python": "3"},
        },
        source={"asked": "mylib.py:adapter", "sha256": ""},
        clauses=clauses,
        records=records,
        gate=judged,
        run={
            "device": device,
            "clauses": [],
            "profiles": [],
            "isolated": True,
            "complete": is_complete,
            "good": not judged.problems,
        },
        started=datetime.datetime.now(datetime.UTC),
    )


def saved(folder: pathlib.Path, content: model.Report) -> pathlib.Path:
    """The file of a report, with a footer that fits it."""
    path = folder / "report.json"
    model.write(path, model.dump(content | {"footer": model._footer(content)}))
    return path


def case(content: model.Report, name: str) -> dict[str, Any]:
    """The case of that name, to be changed."""
    found: dict[str, Any]
    (found,) = [c for clause in content["clauses"] for c in clause["cases"] if c["case"] == name]
    return found
