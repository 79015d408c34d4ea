"""A baseline held against a report: which failures are new, and which entries no longer hold.

The file's own text stays as it is: entries are appended as text, and cut out as text. Read `Update`, then `compare`.
"""

from __future__ import annotations

import glob
import itertools
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ckptspec.conformance.baseline import Known
from ckptspec.conformance.gate import Expectation
from ckptspec.conformance.report.model import Report
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

TODO = "TODO"
"""The reason of a new entry; a run refuses it until somebody has written one."""

Case = dict[str, Any]


@dataclass
class Update:
    """What a report says of a baseline.

    new: entries, as text, for failures that no entry speaks of. stale: entry -> why it holds for none of its cases.
    doubtful: entry -> why it holds for some of its cases only. Entries are counted from 0.
    """

    new: list[str] = field(default_factory=list)
    stale: dict[int, str] = field(default_factory=dict)
    doubtful: dict[int, str] = field(default_factory=dict)


def compare(entries: Sequence[Sequence[Known]], report: Report) -> Update:
    """What the report says of the entries, each the list of failures that it stands for.

    An entry speaks of the cases that no earlier one speaks of, as in a run.
    """
    device, version = report["run"]["device"], report["adapter"]["version"]
    applicable = [(i, known) for i, entry in enumerate(entries) for known in entry if known.applies(device, version)]
    spoken: dict[tuple[int, Known], list[Case]] = {pair: [] for pair in applicable}
    unspoken: list[Case] = []
    for case in (case for clause in report["clauses"] for case in clause["cases"]):
        pair = next((pair for pair in applicable if pair[1].covers(case)), None)
        (unspoken if pair is None else spoken[pair]).append(case)
    update = Update([text for failures in _alike(unspoken) for text in _entries(failures, report)])
    by_entry = itertools.groupby(spoken.items(), key=lambda item: item[0][0])
    for number, group in by_entry:
        holds, why = _holding(list(group), is_complete=report["run"]["complete"])
        if why:
            (update.doubtful if holds else update.stale)[number] = "; ".join(why)
    return update


def _holding(group: list[tuple[tuple[int, Known], list[Case]]], *, is_complete: bool) -> tuple[bool, list[str]]:
    """Whether an entry holds for a case, and why it does not for others."""
    holds, why = False, []
    for (_, known), cases in group:
        for case in cases:
            if known.agrees(case):
                holds = True
            elif case["verdict"] not in (Verdict.NOT_RUN, Verdict.ERROR):  # of which nothing is known
                cause = case["label"] or case["exception"] or case["signal"]
                why.append(f"{case['case']} is {' '.join(filter(None, (case['verdict'], cause)))}")
        if not cases and is_complete:
            place = "-".join(name for name in (known.variant, known.cases) if name != "*")
            why.append(f"there is no case {known.clause}[{place or '*'}]")
    return holds, why


# -- New entries -------------------------------------------------------------------------------------------------------


def _alike(cases: Iterable[Case]) -> Iterable[list[Case]]:
    """The unexpected failures, those together that one entry can speak of."""
    found = defaultdict(list)
    for case in cases:
        if case["verdict"] in BROKEN | DECLINED and case["expectation"] == Expectation.UNEXPECTED:
            found[tuple(case[key] for key in ("clause", *CAUSE))].append(case)
    return found.values()


#: How a case failed, in words that do not change from run to run.
CAUSE = ("verdict", "phase", "label", "exception", "signal")


def _entries(failures: list[Case], report: Report) -> Iterable[str]:
    """The entries for failures of one clause that are alike, as few as speak of them and of no other case."""
    clause = failures[0]["clause"]
    every = [case for stated in report["clauses"] if stated["id"] == clause for case in stated["cases"]]
    places = {(case["variant"], case["parameters"]) for case in failures}
    all_places = {(case["variant"], case["parameters"]) for case in every}
    variants = list(report["adapter"]["variants"])

    def whole(variant: str) -> bool:
        """Whether every case of the variant is among the failures."""
        of_variant = {place for place in all_places if place[0] == variant}
        return bool(of_variant) and of_variant <= places

    full = [variant for variant in variants if whole(variant)]
    if full:
        yield _entry(failures[0], full if len(full) < len(variants) else [], "", report)
    for parameters in dict.fromkeys(case["parameters"] for case in failures):
        some = [v for v in variants if (v, parameters) in places and v not in full]
        if some:
            yield _entry(failures[0], some if len(some) < len(variants) else [], parameters, report)


def _entry(failure: Case, variants: list[str], parameters: str, report: Report) -> str:
    """An entry as text. variants: none for all; parameters: "" for all."""
    device = report["run"]["device"]
    names = [_toml(glob.escape(name)) for name in variants]
    values = {
        "clause": _toml(failure["clause"]),
        "cases": _toml(glob.escape(parameters)) if parameters else "",
        "variant": names[0] if len(names) == 1 else f"[{', '.join(names)}]" if names else "",
        **{key: _toml(failure[key]) if failure[key] else "" for key in CAUSE},
        # What fails on an accelerator only is no failure elsewhere.
        "devices": f"[{_toml(device)}]" if device != "cpu" else "",
        "reason": _toml(TODO),
    }
    return "\n".join(["[[known]]", *(f"{key} = {value}" for key, value in values.items() if value)]) + "\n"


def _toml(text: str) -> str:
    """A string of TOML, which has JSON's escapes; but a surrogate has none."""
    whole = text.encode("utf-8", "replace").decode()
    return json.dumps(whole, ensure_ascii=False).replace("\x7f", "\\u007f")


# -- The file's text ---------------------------------------------------------------------------------------------------

HEADER = re.compile(r"^[ \t]*\[\[[ \t]*known[ \t]*\]\]", re.MULTILINE)


def appended(text: str, new: Iterable[str]) -> str:
    """The text with entries at its end."""
    return "\n".join(filter(None, [text.rstrip("\n") + "\n" if text.strip() else "", *new]))


def pruned(text: str, numbers: Iterable[int]) -> str:
    """The text without some of its entries and the comments that stand directly above them.

    What is written otherwise than as a table of its own stays.
    """
    lines = text.splitlines(keepends=True)
    starts = [i for i, line in enumerate(lines) if HEADER.match(line)]
    for number in sorted((n for n in numbers if n < len(starts)), reverse=True):
        first, end = starts[number], starts[number + 1] if number + 1 < len(starts) else len(lines)
        while first > 0 and lines[first - 1].startswith("#"):
            first -= 1
        while not lines[end - 1].strip() or lines[end - 1].startswith("#"):
            end -= 1
        if end < len(lines) and not lines[end].strip():
            end += 1  # one of the empty lines around it
        del lines[first:end]
    return "".join(lines)
