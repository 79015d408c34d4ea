"""Are the verdicts the same on every run? Runs the suite many times, in random order, with 1, 2 and 4 workers.

`python tests/stability.py [ADAPTER] [RUNS]`; by default the reference, 20 times. Exit code 1 if two runs differ.
"""

from __future__ import annotations

import itertools
import os
import pathlib
import subprocess
import sys
import tempfile

from ckptspec.conformance.report import model

TESTS = pathlib.Path(__file__).parent
WORKERS = (1, 2, 4)


def verdicts(adapter: str, seed: int, workers: int) -> dict[str, tuple[str, str]]:
    """Case -> its verdict and how it failed, in one run."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--adapter={adapter}", f"--report={folder}", f"-n{workers}", "-p", "shuffling", "-q"]
        subprocess.run(
            [sys.executable, "-m", "pytest", "conformance", *options],
            cwd=TESTS.parent,
            env=os.environ | {"SEED": str(seed), "PYTHONPATH": str(TESTS)},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        (path,) = pathlib.Path(folder).glob("*/*/report.json")
        report = model.load(path)
    return {
        case["case"]: (case["verdict"], case["label"] or case["exception"] or case["signal"])
        for clause in report["clauses"]
        for case in clause["cases"]
    }


def main(adapter: str = "reference", runs: str = "20") -> int:
    first: dict[str, tuple[str, str]] = {}
    differing: set[str] = set()
    for seed, workers in zip(range(int(runs)), itertools.cycle(WORKERS), strict=False):
        found = verdicts(adapter, seed, workers)
        first = first or found
        changed = {case for case in first.keys() | found.keys() if first.get(case) != found.get(case)}
        differing |= changed
        print(f"run {seed + 1} of {runs}, {workers} workers: {len(found)} cases, {len(changed)} unlike the first run")
    for case in sorted(differing):
        print(f"✗ {case} differs between runs")
    counts = ", ".join(map(str, WORKERS))
    same = f"{len(differing)} verdicts differ" if differing else f"identical verdicts for all {len(first)} cases"
    print(f"{adapter}: {runs} runs in random order with {counts} workers: {same}")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
