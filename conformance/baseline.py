"""Known failures: what an implementation is known to break, and why.

An entry names a clause, its cases, a verdict and the label or exception type, never numbers or a library's text, with
a reason. A known failure that passes, fails another way, or names an unknown clause, fails the run.

    [[known]]
    clause = "STOP-10"
    cases = "*"                     # glob on the case's parameters, after the variant; optional
    variant = "non-reentrant"       # glob; optional
    verdict = "WRONG"
    label = "gradient"              # of the assertion; or `exception = "TypeError"`, or `signal = "SIGABRT"`
    phase = "backward"              # optional
    reason = "…"
    link = "https://…"              # optional
    devices = ["cpu"]               # optional
    when = "<2.14"                  # optional: only for these versions of the implementation
"""

from __future__ import annotations

import fnmatch
import pathlib
import tomllib
from dataclasses import dataclass, fields
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ckptspec.conformance.verdict import BROKEN, Verdict


class BaselineError(Exception):
    """A baseline can't be read; the message names the file, the entry and what is wrong."""


@dataclass(frozen=True)
class Known:
    """One known failure."""

    clause: str
    verdict: Verdict
    reason: str
    cases: str = "*"
    variant: str = "*"
    label: str = ""
    exception: str = ""
    signal: str = ""
    phase: str = ""
    link: str = ""
    devices: tuple[str, ...] = ()
    when: str = ""

    def covers(self, record: dict[str, Any]) -> bool:
        """Whether the entry speaks of this case."""
        return (
            self.clause == record["clause"]
            and fnmatch.fnmatchcase(record["variant"], self.variant)
            and fnmatch.fnmatchcase(record["parameters"], self.cases)
        )

    def is_for(self, version: str) -> bool:
        """Whether the entry speaks of this version of the implementation."""
        return not self.when or SpecifierSet(self.when).contains(version, prereleases=True)

    def agrees(self, record: dict[str, Any]) -> bool:
        """Whether the case failed the way the entry says."""
        return self.verdict == record["verdict"] and all(
            not said or said == record[key]
            for key, said in (
                ("label", self.label),
                ("exception", self.exception),
                ("signal", self.signal),
                ("phase", self.phase),
            )
        )


def read(path: pathlib.Path, clauses: set[str], device: str, version: str) -> list[Known]:
    """The entries that apply on this device and version. Raises BaselineError."""
    try:
        entries = tomllib.loads(path.read_text()).get("known", [])
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise BaselineError(f"{path}: {error}") from error
    known = [_entry(path, number, entry, clauses) for number, entry in enumerate(entries, 1)]
    return [k for k in known if (not k.devices or device in k.devices) and k.is_for(version)]


def _entry(path: pathlib.Path, number: int, entry: dict[str, Any], clauses: set[str]) -> Known:
    where = f"{path}, entry {number}"
    if unknown := set(entry) - {f.name for f in fields(Known)}:
        raise BaselineError(f"{where}: no such key: {', '.join(sorted(unknown))}")
    if missing := {"clause", "verdict", "reason"} - {k for k, v in entry.items() if v}:
        raise BaselineError(f"{where}: {', '.join(sorted(missing))} is missing")
    if entry["clause"] not in clauses:
        raise BaselineError(f"{where}: there is no clause {entry['clause']}")
    if entry["verdict"] not in {v.value for v in BROKEN}:
        raise BaselineError(f"{where}: verdict {entry['verdict']!r} is none of {', '.join(sorted(BROKEN))}")
    if entry["reason"].strip().upper().startswith("TODO"):
        raise BaselineError(f"{where}: the reason is still to be written")
    if not any(entry.get(key) for key in ("label", "exception", "signal")) and entry["verdict"] != Verdict.TIMEOUT:
        raise BaselineError(f"{where}: say how it fails: label, exception or signal")
    try:
        SpecifierSet(entry.get("when", ""))
    except InvalidSpecifier:
        raise BaselineError(f"{where}: when = {entry['when']!r} is no version range such as '<2.14'") from None
    entry = entry | {"verdict": Verdict(entry["verdict"]), "devices": tuple(entry.get("devices", ()))}
    return Known(**entry)
