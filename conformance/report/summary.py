"""A run in Markdown, for the page of a CI job: `--summary="$GITHUB_STEP_SUMMARY"`.

Made from the run's report. It is appended to the file, for other steps of a job write to it as well. Text that comes
from an implementation is escaped, and there is a limit to the number of rows: such pages refuse what is too long.
"""

from __future__ import annotations

import pathlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from ckptspec.conformance.gate import Expectation
from ckptspec.conformance.report.model import LINK, Report, ReportError
from ckptspec.conformance.report.render import escaped
from ckptspec.conformance.verdict import DECLINED, Verdict

ROWS = 100
"""Rows of a table."""

COUNTS = (
    "variant", "cases", "passed", "known failures", "not as expected", "noted", "declined", "not applicable",
    "profiles kept",
)  # fmt: skip


def append(path: pathlib.Path, text: str) -> None:
    """Write at the end of a file, which need not be there yet. Raises ReportError."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ReportError(f"--summary: {path} can't be written: {error.strerror or error}") from error


def markdown(report: Report, conclusion: str, problems: list[str]) -> str:
    """The run's verdict, counts a variant, what went wrong, and, folded, what was expected to."""
    adapter, run = report["adapter"], report["run"]
    cases = [(clause, case) for clause in report["clauses"] for case in clause["cases"]]
    lines = [
        f"## ckptspec: {escaped(adapter['name'])} {escaped(adapter['version'])}, {escaped(run['device'])}",
        "",
        f"**{escaped(conclusion)}**",
        "",
        *_counts(report, [case for _, case in cases]),
    ]
    by_expectation = {e: [c for c in cases if c[1]["expectation"] == e] for e in Expectation}
    wrong = by_expectation[Expectation.UNEXPECTED] + by_expectation[Expectation.STALE]
    lines += ["", *_table(wrong)] if wrong else []
    ids = {case["case"] for _, case in wrong}
    others = [problem for problem in problems if problem.partition(" ")[0] not in ids]
    lines += ["", *(f"- {escaped(problem)}" for problem in others[:ROWS])] if others else []
    lines += _folded("known failures", by_expectation[Expectation.KNOWN])
    lines += _folded("noted", by_expectation[Expectation.NOTED])
    return "\n".join(lines) + "\n\n"


def _counts(report: Report, cases: list[dict[str, Any]]) -> Iterator[str]:
    yield _row(COUNTS)
    yield "|---" * len(COUNTS) + "|"
    for variant, profiles in report["profiles"].items():
        its = [case for case in cases if case["variant"] == variant]
        verdicts, expectations = Counter(c["verdict"] for c in its), Counter(c["expectation"] for c in its)
        cells: list[object] = [
            escaped(variant),
            len(its),
            verdicts[Verdict.PASS],
            expectations[Expectation.KNOWN],
            expectations[Expectation.UNEXPECTED] + expectations[Expectation.STALE],
            expectations[Expectation.NOTED],
            sum(verdicts[v] for v in DECLINED),
            verdicts[Verdict.NOT_APPLICABLE],
            ", ".join(name for name, is_kept in profiles.items() if is_kept) or "none",
        ]
        yield _row(cells)


def _table(cases: list[tuple[Any, Any]]) -> Iterator[str]:
    yield "| case | level | verdict | how | what was seen | the baseline says |"
    yield "|---" * 6 + "|"
    for clause, case in cases[:ROWS]:
        link = f" [report]({case['link']})" if LINK.fullmatch(case["link"]) else ""
        how = case["label"] or case["exception"] or case["signal"]
        verdict = case["verdict"] + (f" in {case['phase']}" if case["phase"] else "")
        how, seen, reason = (escaped(text) for text in (how, case["message"], case["reason"]))
        yield _row([escaped(case["case"]), clause["level"], verdict, how, seen, reason + link])
    if len(cases) > ROWS:
        yield f"\nand {len(cases) - ROWS} more, in the report"


def _folded(title: str, cases: list[tuple[Any, Any]]) -> list[str]:
    if not cases:
        return []
    return ["", f"<details><summary>{len(cases)} {title}</summary>", "", *_table(cases), "", "</details>"]


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
