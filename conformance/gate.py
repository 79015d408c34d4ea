"""Whether a run is good: each case is held against its clause's level and the baseline of known failures.

Inside a selected profile a MUST clause may not be declined either, unless the baseline says so: a gate on a profile is
good only if the profile is kept or everything that is missing was written down.
"""

from __future__ import annotations

import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ckptspec.conformance.backend import Capability, NotWritten
from ckptspec.conformance.baseline import Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause, Level, Profile
from ckptspec.conformance.printable import line
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict


class Expectation(enum.StrEnum):
    """How a case stands to what was expected of it."""

    AS_SPECIFIED = "as specified"
    KNOWN = "known failure"
    NOTED = "noted"
    UNEXPECTED = "unexpected"
    STALE = "stale"


def expectation(
    record: Record, level: Level, known: Iterable[Known], *, is_owed: bool = False
) -> tuple[Expectation, Known | None]:
    """How a case stands to its level and the baseline, and the entry that speaks of it.

    is_owed: the clause may not be declined, for a selected profile has it.
    """
    data = record.to_json()
    entry = next((k for k in known if k.covers(data)), None)
    if record.verdict is Verdict.ERROR:
        return Expectation.UNEXPECTED, entry
    is_bad = record.verdict in BROKEN or (is_owed and record.verdict in DECLINED)
    if entry is not None and record.verdict is not Verdict.NOT_RUN:
        if entry.agrees(data):
            return Expectation.KNOWN, entry
        return (Expectation.UNEXPECTED if is_bad else Expectation.STALE), entry
    if is_bad or record.verdict is Verdict.NOT_RUN:
        return (Expectation.UNEXPECTED if level is Level.MUST else Expectation.NOTED), entry
    return Expectation.AS_SPECIFIED, None


def is_owed(
    clause: Clause, profiles: Collection[Profile], capabilities: Collection[str], *, is_passed: bool = True
) -> bool:
    """Whether a variant with these capabilities may not decline the clause.

    What tests the reentrant form is asked of the variants that declare it, and of all if none passes it.
    """
    is_asked = Capability.REENTRANT not in clause.tests or Capability.REENTRANT.name in capabilities or not is_passed
    return clause.profile in profiles and is_asked


@dataclass
class Gate:
    """The run's outcome. `problems` is empty if and only if the run is good."""

    expectations: dict[str, Expectation] = field(default_factory=dict)
    reasons: dict[str, Known] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(
    records: Iterable[Record],
    clauses: dict[str, Clause],
    known: list[Known],
    *,
    is_whole: bool,
    profiles: Collection[Profile] = (),
    variants: Mapping[str, Collection[str]] | None = None,
) -> Gate:
    """Hold a run against its clauses and baseline.

    is_whole: there is a record of every case of the clauses in it. profiles: those that were selected.
    variants: the capabilities of each.
    """
    gate, used, missing = Gate(), set(), []
    records = list(records)
    passed = {record.clause for record in records if record.verdict is Verdict.PASS}
    for record in records:
        clause = clauses[record.clause]
        owed = is_owed(clause, profiles, (variants or {}).get(record.variant, ()), is_passed=record.clause in passed)
        found, entry = expectation(record, clause.level, known, is_owed=owed)
        gate.expectations[record.case] = found
        if entry is not None:
            gate.reasons[record.case] = entry
            used.add(entry)
        said = f"{record.case} {describe(record)}"
        if record.verdict is Verdict.NOT_RUN:
            missing += [record] if found is Expectation.UNEXPECTED else []
        elif found is Expectation.UNEXPECTED:
            gate.problems.append(said if entry is None else f"{said}; the baseline expects {_how(entry)}")
        elif found is Expectation.STALE and entry is not None:
            gate.problems.append(f"{said}; the baseline still expects {_how(entry)}")
        elif found is Expectation.NOTED:
            gate.notes.append(f"{clause.level} {said}")
    if missing:
        gate.problems.append(_missing(missing))
    if is_whole:
        gate.problems += [
            f"{k.clause}: the baseline's entry covers no case"
            for k in known
            if k not in used and any(r.clause == k.clause for r in records)
        ]
    gate.problems += _kept_by_nobody(records, clauses, profiles)
    gate.problems[:0] = dict.fromkeys(r.message for r in records if r.label == NotWritten.label)
    return gate


def _missing(records: list[Record]) -> str:
    """One line for all cases that were selected and not executed."""
    names = [record.case for record in records]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{Verdict.NOT_RUN}: {', '.join(names[:3])}{more}, of MUST clauses"


def _kept_by_nobody(records: list[Record], clauses: dict[str, Clause], profiles: Collection[Profile]) -> list[str]:
    """A profile of which nothing passes is not kept, even if every clause of it is excused."""
    must = [r for r in records if clauses[r.clause].level is Level.MUST]
    passed = {(clauses[r.clause].profile, r.variant) for r in must if r.verdict is Verdict.PASS}
    variants = dict.fromkeys(r.variant for r in records)
    return [
        f"profile {p}: no MUST clause of it passes on {v}" for p in profiles for v in variants if (p, v) not in passed
    ]


def vacuous(records: Collection[Record], *, is_whole: bool) -> str:
    """Why a run in which nothing goes wrong shows nothing; '' if it does show something."""
    if not records:
        return "no case was selected"
    return "no case passes" if is_whole and all(r.verdict is not Verdict.PASS for r in records) else ""


def conclusion(gate: Gate, selected: str = "") -> str:
    """The run's verdict and why, on one line. `selected`: what the run was about, if not about everything."""
    if gate.problems:
        more = f" and {len(gate.problems) - 1} more" if len(gate.problems) > 1 else ""
        return f"NOT AS EXPECTED: {line(gate.problems[0], 200)}{more}"
    counts = Counter(gate.expectations.values())
    words = {Expectation.AS_SPECIFIED: "as specified", Expectation.KNOWN: "known to fail", Expectation.NOTED: "noted"}
    said = [f"{counts[found]} {word}" for found, word in words.items() if counts[found]]
    about = f"{line(selected)}: " if selected else ""
    return f"as expected: {about}{len(gate.expectations)} cases, {', '.join(said)}"


def describe(record: Record) -> str:
    """A record's verdict and cause on one line, without what a terminal would act on."""
    cause = record.label or record.exception or record.signal
    first = (record.message.splitlines() or [""])[0]
    said = f"{cause}: {first}" if cause and first and not first.startswith(cause) else first or cause
    return line(f"{record.verdict}{f' in {record.phase}' if record.phase else ''}{f' ({said})' if said else ''}", 2000)


def _how(entry: Known) -> str:
    return " ".join(filter(None, (entry.verdict, entry.label or entry.exception or entry.signal)))


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a clause whose cases have these verdicts."""
    order = [
        Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.WRONG, Verdict.FAIL, Verdict.NOT_RUN,
        Verdict.REFUSED, Verdict.NOT_OFFERED, Verdict.PASS, Verdict.NOT_APPLICABLE,
    ]  # fmt: skip
    return min(verdicts, key=order.index)


def by_clause(records: Iterable[Record]) -> dict[tuple[str, str], Verdict]:
    """(variant, clause) -> the worst verdict of its cases."""
    cases: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for record in records:
        cases[record.variant, record.clause].append(record.verdict)
    return {key: worst(verdicts) for key, verdicts in cases.items()}
