"""report.json: built from a run, written atomically, rejected when its footer is missing or disagrees.

What may differ between two equal runs stands in two parts, `occasion` (commit, isolation) and `timing`; the footer's
digest covers everything else, so that two runs that observed the same have the same footer.
"""

from __future__ import annotations

import datetime
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import os
import pathlib
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from ckptspec.conformance import witnessed
from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import SPEC_REVISION, Clause, Level, Profile
from ckptspec.conformance.gate import Gate, by_clause, is_owed
from ckptspec.conformance.verdict import DECLINED, Verdict

SCHEMA = "ckptspec-report/1"

LINK = re.compile(r"https://[\w./#-]+", re.ASCII)
"""A link that a page may make of a baseline's text."""

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
    reproducers: Mapping[str, str] = MappingProxyType({}),
) -> Report:
    """The report of a run.

    description: the preflight's. run: how it was run, and whether isolated. reproducers: case -> where its script is.
    """
    records = sorted(records, key=lambda r: r.case)
    seen = {r.clause for r in records}
    stated = [c for c in clauses.values() if c.id in seen]
    witnesses = witnessed.names()
    report: Report = {
        "schema": SCHEMA,
        "suite": {"version": _version(), "revision": SPEC_REVISION},
        "adapter": {
            "name": description["name"],
            "version": description["version"],
            "asked": source["asked"] if not source["sha256"] else pathlib.Path(source["asked"]).name,
            "sha256": source["sha256"],
            "host": description["host"],
            "variants": description["variants"],
        },
        "environment": description["environment"],
        "run": {key: value for key, value in run.items() if key != "isolated"},
        "counts": _counts(records, clauses),
        "profiles": _profiles(description["variants"], records, clauses),
        "facts": {fact.name: fact.value for fact in Fact},
        "capabilities": {capability.name: capability.value for capability in Capability},
        "chapters": {chapter: _title(chapter) for chapter in dict.fromkeys(c.chapter for c in stated)},
        "clauses": [
            {
                "id": c.id,
                "chapter": c.chapter,
                "level": c.level,
                "profile": c.profile,
                "tests": [t.name for t in c.tests],
                "needs": sorted(fact.name for fact in c.needs),
                "sentence": c.sentence,
                "not_promised": c.not_promised,
                "source": c.source,
                "test": c.name,
                "witnesses": witnesses.get(c.id, []),
                "cases": [_case(r, gate, reproducers.get(r.case, "")) for r in records if r.clause == c.id],
            }
            for c in stated
        ],
        "occasion": {"git": _git(), "isolated": run["isolated"]},
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


def _case(record: Record, gate: Gate, reproducer: str) -> dict[str, Any]:
    data = record.to_json()
    del data["seconds"], data["library_seconds"], data["control"]
    entry = gate.reasons.get(record.case)
    return data | {
        "expectation": gate.expectations[record.case],
        "reason": entry.reason if entry else "",
        "link": entry.link if entry else "",
        "reproducer": reproducer,
    }


def _counts(records: Iterable[Record], clauses: dict[str, Clause]) -> dict[str, dict[str, dict[str, int]]]:
    """variant -> level -> verdict -> number of clauses, a clause counting with its worst case."""
    counts: dict[str, dict[str, Counter[str]]] = {}
    for (variant, clause), verdict in sorted(by_clause(records).items()):
        counts.setdefault(variant, {}).setdefault(clauses[clause].level, Counter())[verdict] += 1
    return {v: {level: dict(sorted(n.items())) for level, n in levels.items()} for v, levels in counts.items()}


def _profiles(
    variants: dict[str, list[str]], records: list[Record], clauses: dict[str, Clause]
) -> dict[str, dict[str, bool]]:
    """variant -> profile -> whether it is kept: its MUST clauses pass or are not applicable, and at least one passes.

    What `is_owed` doesn't ask of a variant, it may decline. The other profiles are kept besides core: nobody keeps one
    who doesn't keep core.
    """
    verdicts = by_clause(records)
    passed = {clause for (_, clause), verdict in verdicts.items() if verdict is Verdict.PASS}

    def verdict(clause: Clause, variant: str) -> Verdict:
        found = verdicts.get((variant, clause.id), Verdict.NOT_RUN)
        owed = is_owed(clause, list(Profile), variants[variant], is_passed=clause.id in passed)
        return found if owed or found not in DECLINED else Verdict.NOT_APPLICABLE

    kept: dict[str, dict[str, bool]] = {variant: {} for variant in variants}
    for profile in Profile:
        inside = [c for c in clauses.values() if c.profile is profile and c.level is Level.MUST]
        for variant in variants if inside else ():
            found = {verdict(clause, variant) for clause in inside}
            is_whole = Verdict.PASS in found and found <= {Verdict.PASS, Verdict.NOT_APPLICABLE}
            kept[variant][profile.value] = is_whole and kept[variant].get(Profile.CORE, True)
    return kept


def _title(chapter: str) -> str:
    """What a chapter is about, from the first line of its file, `STOP: early stop.`"""
    text = inspect.getdoc(importlib.import_module(f"ckptspec.conformance.test_{chapter.lower()}")) or ""
    return text.partition("\n")[0].partition(": ")[2].rstrip(".")


def _footer(report: Report) -> dict[str, Any]:
    stable = {k: v for k, v in report.items() if k not in ("occasion", "timing", "footer")}
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
    """The checkout's commit, with "+changes" where files differ from it, reports aside; None outside a checkout."""
    folder = pathlib.Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    asked = (["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", ".", ":!reports"])
    try:
        commit, changes = (
            subprocess.run(["git", *a], cwd=folder, capture_output=True, text=True, check=True, timeout=10).stdout
            for a in asked
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return commit.strip() + ("+changes" if changes else "")


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
    except (OSError, ValueError, RecursionError) as error:
        raise ReportError(f"{path} is no report: {error}") from error
    if not isinstance(report, dict) or report.get("schema") != SCHEMA:
        raise ReportError(f"{path} is no report of schema {SCHEMA}")
    try:
        is_whole = report.get("footer") == _footer(report)
    except (KeyError, TypeError):  # for want of the parts that it is made from
        is_whole = False
    if not is_whole:
        raise ReportError(f"{path} is not whole: its footer is missing or disagrees with the rest")
    if lacking := _lacking(report):
        raise ReportError(f"{path} is of another version of the suite: it has no {', '.join(lacking)}")
    return report


def _lacking(report: Report) -> list[str]:
    """What the schema asks for and the report, one of its clauses or one of its cases does not have."""
    schema = json.loads(pathlib.Path(__file__).with_name("report.schema.json").read_text(encoding="utf-8"))
    clause, case = schema["properties"]["clauses"]["items"], schema["$defs"]["case"]
    parts = [(report, schema)]
    for found in report["clauses"]:
        parts += [(found, clause), *((c, case) for c in found["cases"])]
    return list(dict.fromkeys(key for part, of in parts for key in of["required"] if key not in part))


def load_all(folder: pathlib.Path) -> tuple[dict[str, Report], list[str]]:
    """The whole reports under a folder by their place, "torch/cpu"; and a line for each file that is none."""
    reports, bad = {}, []
    for path in sorted(folder.glob("*/*/report.json")):
        try:
            reports[path.parent.relative_to(folder).as_posix()] = load(path)
        except ReportError as error:
            bad.append(str(error).replace(str(folder), folder.name))
    return reports, bad
