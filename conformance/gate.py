"""Whether a run is good: each case is held against its clause's level and the baseline of known failures."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from ckptspec.conformance.baseline import Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause, Level
from ckptspec.conformance.verdict import BROKEN, Verdict


class Expectation(enum.StrEnum):
    """How a case stands to what was expected of it."""

    AS_SPECIFIED = "as specified"
    KNOWN = "known failure"
    NOTED = "noted"
    UNEXPECTED = "unexpected"
    STALE = "stale"


def expectation(record: Record, level: Level, known: Iterable[Known]) -> tuple[Expectation, Known | None]:
    """How a case stands to its level and the baseline, and the entry that speaks of it."""
    data = record.to_json()
    entry = next((k for k in known if k.covers(data)), None)
    if record.verdict is Verdict.ERROR:
        return Expectation.UNEXPECTED, entry
    if entry is not None:
        if entry.agrees(data):
            return Expectation.KNOWN, entry
        return (Expectation.UNEXPECTED if record.verdict in BROKEN else Expectation.STALE), entry
    if record.verdict in BROKEN or record.verdict is Verdict.NOT_RUN:
        return (Expectation.UNEXPECTED if level is Level.MUST else Expectation.NOTED), None
    return Expectation.AS_SPECIFIED, None


@dataclass
class Gate:
    """The run's outcome. `problems` is empty if and only if the run is good."""

    expectations: dict[str, Expectation] = field(default_factory=dict)
    reasons: dict[str, Known] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(records: Iterable[Record], clauses: dict[str, Clause], known: list[Known], *, is_whole: bool) -> Gate:
    """Hold a run against its clauses and baseline. `is_whole`: every clause was selected."""
    gate, used = Gate(), set()
    for record in records:
        found, entry = expectation(record, clauses[record.clause].level, known)
        gate.expectations[record.case] = found
        if entry is not None:
            gate.reasons[record.case] = entry
            used.add(entry)
        line = f"{record.case} {describe(record)}"
        if found is Expectation.UNEXPECTED:
            gate.problems.append(line if entry is None else f"{line}; the baseline expects {_how(entry)}")
        elif found is Expectation.STALE and entry is not None:
            gate.problems.append(f"{line}; the baseline still expects {_how(entry)}")
        elif found is Expectation.NOTED:
            gate.notes.append(f"{clauses[record.clause].level} {line}")
    if is_whole:
        gate.problems += [f"{k.clause}: the baseline's entry covers no case" for k in known if k not in used]
    return gate


def describe(record: Record) -> str:
    """A record's verdict and cause on one line."""
    cause = record.label or record.exception or record.signal
    first = (record.message.splitlines() or [""])[0]
    said = f"{cause}: {first}" if cause and first and not first.startswith(cause) else first or cause
    return f"{record.verdict}{f' in {record.phase}' if record.phase else ''}{f' ({said})' if said else ''}"


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
