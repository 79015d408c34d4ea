"""What is concluded from what was observed: the verdict table, as data.

A missing capability excuses a refusal, never a wrong answer; a dead or hung process is never excused.
"""

from __future__ import annotations

import enum


class Observed(enum.Enum):
    """What happened to a case."""

    HOLDS = "holds, with evidence"
    WRONG = "a value differs from the plain run"
    BOUND = "a bound, count or cause differs"
    RAISED = "an exception left a checkpointer call or a pullback"
    DIED = "the process died"
    HUNG = "the process did not end"
    OTHER = "any other exception"
    PLAIN = "plain does not do what the clause says, does not repeat, or a host fact is missing"


class Verdict(enum.StrEnum):
    """What a report says of a case."""

    PASS = "PASS"
    WRONG = "WRONG"
    FAIL = "FAIL"
    CRASH = "CRASH"
    TIMEOUT = "TIMEOUT"
    ERROR = "ERROR"
    NOT_OFFERED = "NOT_OFFERED"
    REFUSED = "REFUSED"
    NOT_APPLICABLE = "N/A"
    NOT_RUN = "NOT_RUN"


#: observed -> (verdict if the capability is declared or core, verdict if it is not declared)
TABLE: dict[Observed, tuple[Verdict, Verdict]] = {
    Observed.HOLDS: (Verdict.PASS, Verdict.PASS),
    Observed.WRONG: (Verdict.WRONG, Verdict.WRONG),
    Observed.BOUND: (Verdict.FAIL, Verdict.NOT_OFFERED),
    Observed.RAISED: (Verdict.FAIL, Verdict.REFUSED),
    Observed.DIED: (Verdict.CRASH, Verdict.CRASH),
    Observed.HUNG: (Verdict.TIMEOUT, Verdict.TIMEOUT),
    Observed.OTHER: (Verdict.ERROR, Verdict.ERROR),
    Observed.PLAIN: (Verdict.NOT_APPLICABLE, Verdict.NOT_APPLICABLE),
}

#: The implementation broke the clause.
BROKEN = frozenset({Verdict.WRONG, Verdict.FAIL, Verdict.CRASH, Verdict.TIMEOUT})
#: The implementation does not offer it, and says so.
DECLINED = frozenset({Verdict.NOT_OFFERED, Verdict.REFUSED})


def conclude(observed: Observed, *, is_declared: bool) -> Verdict:
    """The verdict for what was observed; `is_declared` is true for core clauses."""
    declared, undeclared = TABLE[observed]
    return declared if is_declared else undeclared
