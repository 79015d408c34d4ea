"""What changed between two reports, case by case.

Read `HARM` first: it says which verdict is worse than which. Then `compare`, then how a comparison is written down.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ckptspec.conformance.report.model import Report
from ckptspec.conformance.report.render import escaped
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

#: From harmless to harmful. Who declines says so; a failure is noticed; a dead or hung process takes the run with it;
#: a wrong value goes unnoticed. What a verdict is not in here for (N/A, NOT_RUN, ERROR) was not observed.
HARM: tuple[frozenset[Verdict], ...] = (
    frozenset({Verdict.PASS}),
    DECLINED,
    frozenset({Verdict.FAIL}),
    frozenset({Verdict.CRASH, Verdict.TIMEOUT}),
    frozenset({Verdict.WRONG}),
)


class Change(enum.StrEnum):
    """How a case changed; the worst first."""

    REGRESSED = "regressed"
    NOT_COMPARABLE = "not comparable"
    REMOVED = "removed"
    NEW = "new"
    CHANGED = "changed"
    IMPROVED = "improved"
    FIXED = "fixed"


class Outcome(enum.IntEnum):
    """What a comparison comes to: an exit code."""

    SAME_OR_BETTER = 0
    REGRESSED = 1
    NOT_COMPARABLE = 3


@dataclass(frozen=True)
class Difference:
    """One case that is not as it was. before, after: verdict and cause, "" where there is none. why: not comparable."""

    case: str
    level: str
    change: Change
    before: str
    after: str
    why: str = ""


@dataclass
class Comparison:
    """Two reports held against each other.

    before, after: the implementations. obstacles: why they can't be compared as a whole. same: cases without a change.
    """

    before: str
    after: str
    obstacles: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    same: int = 0

    @property
    def counts(self) -> dict[str, int]:
        """How many cases changed in which way."""
        found = Counter(d.change for d in self.differences)
        return {change.value: found[change] for change in Change if found[change]}

    @property
    def outcome(self) -> Outcome:
        changes = {d.change for d in self.differences}
        if Change.REGRESSED in changes:
            return Outcome.REGRESSED
        if self.obstacles or changes & {Change.NOT_COMPARABLE, Change.REMOVED}:
            return Outcome.NOT_COMPARABLE
        return Outcome.SAME_OR_BETTER

    def to_json(self) -> dict[str, Any]:
        return {
            "before": self.before,
            "after": self.after,
            "outcome": self.outcome.name.lower(),
            "obstacles": self.obstacles,
            "counts": self.counts | {"same": self.same},
            "differences": [asdict(d) for d in self.differences],
        }


def compare(before: Report, after: Report) -> Comparison:
    """Hold a report against an earlier one. Differences come in the order of `Change`, then of the specification.

    Only variants that both have are compared. A case is not comparable if in one of the reports its clause reads
    otherwise or tests other capabilities, nothing was observed, or it was not selected.
    """
    found = Comparison(_name(before), _name(after), list(_obstacles(before, after)))
    if before["suite"]["revision"] != after["suite"]["revision"]:
        return found
    variants = before["adapter"]["variants"].keys() & after["adapter"]["variants"].keys()
    old, new = _cases(before, variants), _cases(after, variants)
    for key in dict.fromkeys([*new, *old]):
        difference = _difference(key, old.get(key), new.get(key), before, after)
        if difference is None:
            found.same += 1
        else:
            found.differences.append(difference)
    order = list(Change)
    found.differences.sort(key=lambda d: order.index(d.change))
    return found


def _name(report: Report) -> str:
    adapter = report["adapter"]
    return f"{adapter['name']} {adapter['version']}, {report['run']['device']}"


def _obstacles(before: Report, after: Report) -> Iterator[str]:
    revisions = before["suite"]["revision"], after["suite"]["revision"]
    if revisions[0] != revisions[1]:
        yield f"the specification's revisions differ: {revisions[0]} and {revisions[1]}"
    for which, report in (("first", before), ("second", after)):
        if not report["run"]["complete"]:
            yield f"the {which} report is of some clauses only, or of a run that was interrupted"
    variants = [set(report["adapter"]["variants"]) for report in (before, after)]
    if variants[0] != variants[1]:
        yield f"the variants differ: {', '.join(sorted(variants[0]))} and {', '.join(sorted(variants[1]))}"


Stated = tuple[dict[str, Any], dict[str, Any]]
"""A clause and a case of it, as in a report."""


def _cases(report: Report, variants: Collection[str]) -> dict[str, Stated]:
    return {
        case["case"]: (clause, case)
        for clause in report["clauses"]
        for case in clause["cases"]
        if case["variant"] in variants
    }


def _difference(key: str, old: Stated | None, new: Stated | None, before: Report, after: Report) -> Difference | None:
    clause, _ = new or old or ({}, {})
    texts = _text(old), _text(new)

    def of(change: Change, why: str = "") -> Difference:
        return Difference(key, clause["level"], change, *texts, why)

    if old is None or new is None:
        which, other = ("first", before) if old is None else ("second", after)
        if not other["run"]["complete"]:
            return of(Change.NOT_COMPARABLE, f"the {which} report has no such case, and is not of a whole run")
        return of(Change.NEW if old is None else Change.REMOVED)
    if any(old[0][part] != new[0][part] for part in ("sentence", "tests")):
        return of(Change.NOT_COMPARABLE, "the clause says or tests something else")
    harms = _harm(old[1]["verdict"]), _harm(new[1]["verdict"])
    if harms[0] is None or harms[1] is None:
        if old[1]["verdict"] == new[1]["verdict"]:
            return None
        return of(Change.NOT_COMPARABLE, "nothing was observed in one of them")
    if harms[1] > harms[0]:
        return of(Change.REGRESSED)
    if harms[1] < harms[0]:
        return of(Change.FIXED if harms[1] == 0 else Change.IMPROVED)
    return None if texts[0] == texts[1] else of(Change.CHANGED)


def _harm(verdict: str) -> int | None:
    return next((i for i, verdicts in enumerate(HARM) if verdict in verdicts), None)


def _text(stated: Stated | None) -> str:
    """A case's verdict and cause, in words that do not change from run to run."""
    if stated is None:
        return ""
    case = stated[1]
    cause = case["label"] or case["exception"] or case["signal"] if case["verdict"] in BROKEN else ""
    return " ".join(filter(None, (case["verdict"], cause)))


# -- In words ----------------------------------------------------------------------------------------------------------


def summary(comparison: Comparison) -> str:
    """What it comes to, and how often what changed, on one line."""
    counts = [f"{n} {change}" for change, n in comparison.counts.items()] + [f"{comparison.same} the same"]
    return f"{comparison.outcome.name.replace('_', ' ').lower()}: {', '.join(counts)}"


def markdown(comparison: Comparison) -> str:
    """The comparison for a comment in a review. Text that comes from an implementation is escaped."""
    lines = [
        f"**{summary(comparison)}**",
        "",
        f"From {escaped(comparison.before)} to {escaped(comparison.after)}.",
        *(f"- Not comparable: {escaped(obstacle)}." for obstacle in comparison.obstacles),
    ]
    if comparison.differences:
        lines += ["", "| case | level | change | before | after |", "|---|---|---|---|---|"]
    for d in comparison.differences:
        change = f"{d.change}: {d.why}" if d.why else d.change
        lines.append(f"| {' | '.join(map(escaped, (d.case, d.level, change, d.before, d.after)))} |")
    return "\n".join(lines) + "\n"
