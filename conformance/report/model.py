"""report.json: built from a run, written atomically, rejected when its footer is missing or disagrees.

Everything that differs between two equal runs (dates, durations) stands in `timing`; the footer's digest covers the
rest, so that two runs' verdicts compare equal.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from typing import Any

from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import SPEC_REVISION, Clause, Level, Profile
from ckptspec.conformance.gate import Gate, by_clause
from ckptspec.conformance.verdict import Verdict

SCHEMA = "ckptspec-report/1"

Report = dict[str, Any]


class ReportError(Exception):
    """A report can't be written, or is none or not whole; the message names the file."""


def build(
    *,
    description: dict[str, Any],
    source: dict[str, Any],
    clauses: dict[str, Clause],
    records: Iterable[Record],
    gate: Gate,
    run: dict[str, Any],
    started: datetime.datetime,
) -> Report:
    """The report of a run. `description` is the preflight's, `run` says how it was run."""
    records = sorted(records, key=lambda r: r.case)
    report: Report = {
        "schema": SCHEMA,
        "suite": {"version": _version(), "revision": SPEC_REVISION, "git": _git()},
        "adapter": {
            "name": description["name"],
            "version": description["version"],
            "asked": source["asked"] if not source["sha256"] else pathlib.Path(source["asked"]).name,
            "sha256": source["sha256"],
            "host": description["host"],
            "variants": description["variants"],
        },
        "environment": description["environment"],
        "run": run,
        "counts": _counts(records, clauses),
        "profiles": {variant: _profiles(variant, records, clauses) for variant in description["variants"]},
        "clauses": [
            {
                "id": c.id,
                "chapter": c.chapter,
                "level": c.level,
                "profile": c.profile,
                "tests": [t.name for t in c.tests],
                "sentence": c.sentence,
                "test": c.name,
                "cases": [_case(r, gate) for r in records if r.clause == c.id],
            }
            for c in clauses.values()
            if any(r.clause == c.id for r in records)
        ],
        "timing": {
            "started": started.isoformat(timespec="seconds"),
            "seconds": round((datetime.datetime.now(datetime.UTC) - started).total_seconds(), 1),
            "library": round(sum(r.library_seconds for r in records), 1),
            "harness": round(sum(r.seconds - r.library_seconds for r in records), 1),
            "cases": {r.case: round(r.seconds, 4) for r in records},
        },
    }
    report["footer"] = _footer(report)
    return report


def _case(record: Record, gate: Gate) -> dict[str, Any]:
    data = record.to_json()
    del data["seconds"], data["library_seconds"]
    entry = gate.reasons.get(record.case)
    return data | {
        "expectation": gate.expectations[record.case],
        "reason": entry.reason if entry else "",
        "link": entry.link if entry else "",
    }


def _counts(records: Iterable[Record], clauses: dict[str, Clause]) -> dict[str, dict[str, dict[str, int]]]:
    """variant -> level -> verdict -> number of clauses, a clause counting with its worst case."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for (variant, clause), verdict in sorted(by_clause(records).items()):
        counts.setdefault(variant, {}).setdefault(clauses[clause].level, Counter())[verdict] += 1
    return {v: {level: dict(sorted(n.items())) for level, n in levels.items()} for v, levels in counts.items()}


def _profiles(variant: str, records: list[Record], clauses: dict[str, Clause]) -> dict[str, bool]:
    """Which profiles a variant keeps: every MUST clause of it passes or is not applicable, and at least one passes.

    The others are kept besides core: nobody keeps one who doesn't keep core.
    """
    verdicts = {clause: verdict for (v, clause), verdict in by_clause(records).items() if v == variant}
    kept: dict[str, bool] = {}
    for profile in Profile:
        inside = [c.id for c in clauses.values() if c.profile is profile and c.level is Level.MUST]
        found = [verdicts.get(id, Verdict.NOT_RUN) for id in inside]
        if inside:
            is_whole = Verdict.PASS in found and set(found) <= {Verdict.PASS, Verdict.NOT_APPLICABLE}
            kept[profile.value] = is_whole and kept.get(Profile.CORE, True)
    return kept


def _footer(report: Report) -> dict[str, Any]:
    stable = {k: v for k, v in report.items() if k not in ("timing", "footer", "run", "suite")}
    text = json.dumps(stable, sort_keys=True)
    return {
        "cases": sum(len(c["cases"]) for c in report["clauses"]),
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
    }


def _version() -> str:
    try:
        return importlib.metadata.version("ckptspec")
    except importlib.metadata.PackageNotFoundError:
        return "checkout"


def _git() -> str | None:
    """The checkout's commit, with "+changes" where files differ from it; None outside a checkout."""
    folder = pathlib.Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    try:
        commit = subprocess.run(
            ["git", "describe", "--always", "--dirty=+changes", "--exclude=*"],
            cwd=folder, capture_output=True, text=True, check=True, timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.stdout.strip()


def prepare(folder: pathlib.Path) -> None:
    """Raise ReportError if the folder can't be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ReportError(f"--report: {folder} can't be written: {error.strerror or error}") from error


def write(path: pathlib.Path, text: str) -> None:
    """Write a file so that it is there whole or not at all. Raises ReportError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise ReportError(f"{path} can't be written: {error.strerror or error}") from error


def dump(report: Report) -> str:
    return json.dumps(report, indent=1, ensure_ascii=True) + "\n"


def load(path: pathlib.Path) -> Report:
    """A whole report. Raises ReportError for anything else, a truncated one included."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} is no report: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ReportError(f"{path} is no report of schema {SCHEMA}")
    if report.get("footer") != _footer(report):
        raise ReportError(f"{path} is not whole: its footer is missing or disagrees with the rest")
    return report
