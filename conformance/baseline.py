"""Known failures: what an implementation is known to break, and why.

An entry names a clause, its cases, a verdict and the label or exception type, never numbers or a library's text, with
a reason. A known failure that passes, fails another way, or names an unknown clause, fails the run.

    [[known]]
    clause = "STOP-10"              # or a list: the entry stands for one of each
    cases = "*"                     # glob on the case's parameters, after the variant; optional
    variant = "non-reentrant"       # glob, or a list of them; optional
    verdict = "WRONG"               # or REFUSED, NOT_OFFERED: what a selected profile demands is declined
    label = "gradient"              # of the assertion; or `exception = "TypeError"`, or `signal = "SIGABRT"`
    phase = "backward"              # optional
    reason = "…"
    link = "https://…"              # optional
    devices = ["cpu"]               # optional
    when = "<2.14"                  # optional: only for these versions of the implementation
"""

from __future__ import annotations

import fnmatch
import itertools
import pathlib
import tomllib
from collections.abc import Container
from dataclasses import dataclass, fields
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

#: Keys of which an entry may have a list.
LISTS = ("clause", "variant")


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

    def applies(self, device: str, version: str) -> bool:
        """Whether the entry speaks of this device and version of the implementation."""
        is_for_version = not self.when or SpecifierSet(self.when).contains(version, prereleases=True)
        return is_for_version and (not self.devices or device in self.devices)

    @property
    def is_unwritten(self) -> bool:
        """Whether the reason is still to be written."""
        return self.reason.strip().upper().startswith("TODO")

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


def read(path: pathlib.Path, clauses: Container[str], device: str, version: str) -> list[Known]:
    """The entries that apply on this device and version. Raises BaselineError."""
    known = []
    for number, entry in enumerate(entries(read_text(path), path, clauses), 1):
        if entry[0].is_unwritten:
            raise BaselineError(f"{path}, entry {number}: the reason is still to be written")
        known += [k for k in entry if k.applies(device, version)]
    return known


def read_text(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BaselineError(f"{path}: {error}") from error


def entries(text: str, path: pathlib.Path, clauses: Container[str]) -> list[list[Known]]:
    """What each entry of a baseline stands for: one failure, or with lists several. Raises BaselineError."""
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BaselineError(f"{path}: {error}") from error
    if unknown := set(found) - {"known"}:
        raise BaselineError(f"{path}: no such key: {', '.join(sorted(unknown))}; an entry begins with [[known]]")
    written = found.get("known", [])
    if not isinstance(written, list) or not all(isinstance(entry, dict) for entry in written):
        raise BaselineError(f"{path}: an entry begins with [[known]]")
    return [_entry(f"{path}, entry {number}", entry, clauses) for number, entry in enumerate(written, 1)]


def _entry(where: str, entry: dict[str, Any], clauses: Container[str]) -> list[Known]:
    if unknown := set(entry) - {f.name for f in fields(Known)}:
        raise BaselineError(f"{where}: no such key: {', '.join(sorted(unknown))}")
    if missing := {"clause", "verdict", "reason"} - {k for k, v in entry.items() if v}:
        raise BaselineError(f"{where}: {', '.join(sorted(missing))} is missing")
    listed = {key: _listed(entry.get(key, "*")) for key in LISTS} | {"devices": entry.get("devices", [])}
    for key, value in {**entry, **listed}.items():
        texts = value if key in listed else [value]
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts) or (key in LISTS and not texts):
            raise BaselineError(f"{where}: {key} = {entry[key]!r} is no text{' or list' if key in LISTS else ''}")
    for id in listed["clause"]:
        if id not in clauses:
            raise BaselineError(f"{where}: there is no clause {id}")
    if entry["verdict"] not in {v.value for v in BROKEN | DECLINED}:
        raise BaselineError(f"{where}: verdict {entry['verdict']!r} is none of {', '.join(sorted(BROKEN | DECLINED))}")
    if not any(entry.get(key) for key in ("label", "exception", "signal")) and entry["verdict"] != Verdict.TIMEOUT:
        raise BaselineError(f"{where}: say how it fails: label, exception or signal")
    try:
        SpecifierSet(entry.get("when", ""))
    except InvalidSpecifier:
        raise BaselineError(f"{where}: when = {entry['when']!r} is no version range such as '<2.14'") from None
    common = entry | {"verdict": Verdict(entry["verdict"]), "devices": tuple(listed["devices"])}
    each = itertools.product(*(listed[key] for key in LISTS))
    return [Known(**common | dict(zip(LISTS, chosen, strict=True))) for chosen in each]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value
