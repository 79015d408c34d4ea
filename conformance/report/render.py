"""README.md of a reports folder: the matrix of chapters × adapters and variants, and what failed and why.

Made from the report.json files and nothing else. Text that comes from an implementation is escaped. `draw` writes it
and the web page of `page`, which shows the same and each case besides.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from ckptspec.conformance.gate import worst
from ckptspec.conformance.report import page
from ckptspec.conformance.report.model import LINK, Report, load, load_all, write
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

HEAD = """\
# What each implementation keeps and breaks

Generated from the `report.json` files in this folder; do not edit. [index.html](index.html) shows the same in a
browser, with each clause's text and each case's evidence.

A cell reads **passed / applicable / declared**. Declared: the clauses of the chapter. Applicable: those that say
something about this host. Passed: those that hold. A clause counts with its worst case. *Declined* clauses (refused or
not offered, without a wrong answer) are applicable and do not pass. ✗ marks a chapter in which a clause is broken: a
wrong value, a failed bound, a crash or a hang.
"""


def draw(folder: pathlib.Path) -> None:
    """Write README.md and index.html of a reports folder. Raises ReportError."""
    write(folder / "README.md", matrix(folder))
    write(folder / "index.html", page.html(folder))


def matrix(folder: pathlib.Path) -> str:
    """The text of README.md for the reports under a folder; a report that is not whole is named instead of drawn."""
    reports, bad = load_all(folder)
    columns = [(report, variant) for report in reports.values() for variant in report["adapter"]["variants"]]
    lines = [HEAD, *_table(columns), *(["", "Left out:", *(f"- {escaped(line)}" for line in bad)] if bad else [])]
    for report, variant in columns:
        lines += _section(report, variant)
    return "\n".join(lines).rstrip() + "\n"


def summary(folder: pathlib.Path) -> str:
    """One line an implementation, for a README: the reports under a folder in short."""
    lines = [
        "| implementation | passed / applicable / declared | wrong values | otherwise broken | profiles kept |",
        "|---|---|---|---|---|",
    ]
    for path in sorted(folder.glob("*/*/report.json")):
        report = load(path)
        for variant in report["adapter"]["variants"]:
            found = _verdicts(report, variant, None)
            wrong, broken = found.count(Verdict.WRONG), sum(v in BROKEN for v in found)
            name = f"{report['adapter']['name']} {report['adapter']['version']}, {variant}, {report['run']['device']}"
            cells = (
                escaped(name),
                _cell(report, variant, None),
                str(wrong),
                str(broken - wrong),
                _profiles(report, variant),
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _title(report: Report, variant: str) -> str:
    return f"{report['adapter']['name']} {variant}, {report['run']['device']}"


def _table(columns: list[tuple[Report, str]]) -> Iterator[str]:
    chapters = list(dict.fromkeys(c["chapter"] for report, _ in columns for c in report["clauses"]))
    yield "| chapter | " + " | ".join(escaped(_title(*column)) for column in columns) + " |"
    yield "|---|" + "---|" * len(columns)
    for chapter in chapters:
        yield f"| {chapter} | " + " | ".join(_cell(*column, chapter) for column in columns) + " |"
    yield "| **all** | " + " | ".join(_cell(*column, None) for column in columns) + " |"
    yield "| profiles kept | " + " | ".join(_profiles(*column) for column in columns) + " |"


def _verdicts(report: Report, variant: str, chapter: str | None) -> list[Verdict]:
    """One verdict a clause."""
    return [
        worst(Verdict(case["verdict"]) for case in cases)
        for clause in report["clauses"]
        if chapter in (None, clause["chapter"])
        if (cases := [case for case in clause["cases"] if case["variant"] == variant])
    ]


def _cell(report: Report, variant: str, chapter: str | None) -> str:
    found = _verdicts(report, variant, chapter)
    applicable = [v for v in found if v is not Verdict.NOT_APPLICABLE]
    mark = " ✗" if BROKEN & set(found) else ""
    return f"{found.count(Verdict.PASS)} / {len(applicable)} / {len(found)}{mark}"


def _profiles(report: Report, variant: str) -> str:
    kept = [name for name, is_kept in report["profiles"][variant].items() if is_kept]
    return ", ".join(kept) or "none"


def _section(report: Report, variant: str) -> Iterator[str]:
    """What failed, what was declined, and what says nothing about this host."""
    adapter = report["adapter"]
    yield f"\n## {escaped(_title(report, variant))}\n"
    yield (
        f"{escaped(adapter['name'])} {escaped(adapter['version'])} on {escaped(adapter['host']['name'])} "
        + escaped(adapter["host"]["version"])
        + f", spec revision {report['suite']['revision']}.\n"
    )
    cases = [(clause, case) for clause in report["clauses"] for case in clause["cases"] if case["variant"] == variant]
    broken = [(clause, case) for clause, case in cases if case["verdict"] in BROKEN or case["verdict"] == "ERROR"]
    if broken:
        yield "| case | level | verdict | how | why |"
        yield "|---|---|---|---|---|"
        for clause, case in broken:
            how = case["label"] or case["exception"] or case["signal"]
            link = f" [report]({case['link']})" if LINK.fullmatch(case["link"]) else ""
            verdict = case["verdict"] + ("" if case["expectation"] == "known failure" else f" ({case['expectation']})")
            cells = escaped(case["case"]), clause["level"], verdict, escaped(how), escaped(case["reason"]) + link
            yield f"| {' | '.join(cells)} |"
    else:
        yield "Nothing is broken."
    for title, verdicts in (("Declined", DECLINED), ("Not applicable", {Verdict.NOT_APPLICABLE})):
        names = _names(case["clause"] for _, case in cases if case["verdict"] in verdicts)
        if names:
            yield f"\n{title}: {names}."


def _names(ids: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(ids))


def escaped(text: object) -> str:
    """Text that can't become markup: one line, printable, what Markdown, HTML and GitHub act on escaped."""
    line = "".join(c if c.isprintable() else " " for c in str(text)[:300])
    # Also what becomes a link by itself: https://…, www.…, @name.
    return re.sub(r"[\\`*_{}\[\]<>|&~$@]|:(?=//)|(?<=www)\.", lambda m: f"&#{ord(m[0])};", " ".join(line.split()))
