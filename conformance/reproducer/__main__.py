"""Runs the reproducers of reports, each in processes of its own: does each show its fault, and none without checkpoint?

    python -m ckptspec.conformance.reproducer reports/torch

A script must end with 1, and with `--plain` with 0. One line tells of each that does not, the last one how many there
are; exit code 1 if one is not as its report says, 2 if there is nothing to run.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import NamedTuple

from ckptspec.conformance.printable import line
from ckptspec.conformance.report import model

LIMIT = 300.0
"""Seconds after which a script is ended."""

EXEMPT = "This is asked of a checkpoint, not of a plain call."


class Outcome(NamedTuple):
    """How a script ended, as it is and with `--plain`, and what it said last."""

    path: pathlib.Path
    codes: tuple[int, int]
    said: tuple[str, str]

    @property
    def is_good(self) -> bool:
        return self.codes == (1, 0)

    @property
    def is_exempt(self) -> bool:
        """Whether it demands of a checkpoint what a plain call cannot do."""
        return EXEMPT in self.said[1]

    def __str__(self) -> str:
        for wanted, code, said, how in zip((1, 0), self.codes, self.said, ("", " --plain"), strict=True):
            if code != wanted:
                return f"{self.path}{how} ends with {code}, not {wanted}: {line(said)}"
        return f"{self.path}: as the report says"


def reports(places: Iterable[pathlib.Path]) -> list[pathlib.Path]:
    """The reports given, and every report.json below a folder."""
    return [path for p in places for path in (sorted(p.rglob("report.json")) if p.is_dir() else [p])]


def scripts(path: pathlib.Path) -> list[pathlib.Path]:
    """The scripts that a report names. Raises ReportError."""
    cases = [case for clause in model.load(path)["clauses"] for case in clause["cases"]]
    return [path.parent / case["reproducer"] for case in cases if case["reproducer"]]


def run(path: pathlib.Path) -> Outcome:
    """Run a script, and run it without checkpoint. Modules are looked for in the directory of invocation as well."""
    ends = [_run(path), _run(path, "--plain")]
    return Outcome(path, (ends[0][0], ends[1][0]), (ends[0][1], ends[1][1]))


def _run(path: pathlib.Path, *arguments: str) -> tuple[int, str]:
    paths = filter(None, [os.getcwd(), os.environ.get("PYTHONPATH", "")])
    try:
        ended = subprocess.run(
            [sys.executable, str(path), *arguments],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end within {LIMIT:g} seconds"
    return ended.returncode, ended.stdout.decode(errors="replace")[-300:]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m ckptspec.conformance.reproducer", description="Run reproducers.")
    parser.add_argument("places", nargs="+", type=pathlib.Path, metavar="PLACE", help="reports, or folders of them")
    count = min(os.cpu_count() or 1, 4)
    parser.add_argument("-n", type=int, default=count, help="scripts at a time (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    try:
        found = [script for path in reports(chosen.places) for script in scripts(path)]
    except model.ReportError as error:
        print(error)
        return 2
    if not reports(chosen.places):
        print(f"there is no report.json below {', '.join(map(str, chosen.places))}")
        return 2
    with concurrent.futures.ThreadPoolExecutor(chosen.n) as pool:
        outcomes = list(pool.map(run, found))
    for outcome in outcomes:
        if not outcome.is_good:
            print(outcome)
    good, exempt = sum(o.is_good for o in outcomes), sum(o.is_exempt for o in outcomes)
    print(f"{good} of {len(outcomes)} reproducers show their fault and hold without checkpoint ({exempt} by exemption)")
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
