"""index.html of a reports folder: every report, clause and case, to filter, to search, and to link to.

One file that loads nothing: page.html with page.css, page.js and one JSON document in it, made from the report.json
files and nothing else. The script turns the document into text nodes, never into markup, and a policy in the page lets
no other script run. `document` is what there is to show; `html` is the file.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pathlib
import re
import string
from typing import Any

from ckptspec.conformance.gate import worst
from ckptspec.conformance.printable import printable
from ckptspec.conformance.report.model import LINK, Report, load_all
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

HERE = pathlib.Path(__file__).parent

LIMIT = 4000
"""Characters of a text that the page shows; report.json has the rest."""

FILE = re.compile(r"\w[\w. -]{0,99}(/\w[\w. -]{0,99}){0,3}", re.ASCII)
"""A file beside a report, below its folder."""

MARKS = {"passed": "✓", "broken": "✗", "declined": "○", "absent": "–", "other": "!"}
"""Kind of verdict -> its sign. Words and signs tell verdicts apart, colours only help."""

WORDS = {
    Verdict.WRONG: ("wrong", "a value or gradient differs from the plain run"),
    Verdict.FAIL: ("failed", "a bound, a count or a cause differs, or it raises where it said that it can"),
    Verdict.CRASH: ("crashed", "the process died"),
    Verdict.TIMEOUT: ("timed out", "the process did not end"),
    Verdict.ERROR: ("error", "the suite or the adapter failed, not the implementation"),
    Verdict.NOT_RUN: ("not run", "it was selected and never executed"),
    Verdict.REFUSED: ("refused", "it raises, and had not said that it can"),
    Verdict.NOT_OFFERED: ("not offered", "it does less, and had not said that it can; the values are right"),
    Verdict.PASS: ("passed", "it holds, and a replay was seen in backward"),
    Verdict.NOT_APPLICABLE: ("not applicable", "it says nothing about this host, or the plain run does not do it"),
}


def html(folder: pathlib.Path) -> str:
    """The text of index.html for the reports under a folder."""
    page, style, script = ((HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    return string.Template(page).substitute(
        style=style,
        script=script,
        style_digest=_digest(style),
        script_digest=_digest(script),
        document=_inline(document(folder)),
    )


def document(folder: pathlib.Path) -> dict[str, Any]:
    """What the page shows. All texts in it are printable.

    reports: by their place, "torch/cpu", without clauses. results: place -> variant -> clause -> its worst verdict, and
    parameters with the number of an outcome for each case. outcomes: cases that came out alike stand there once.
    """
    found, bad = load_all(folder)
    outcomes: dict[str, int] = {}
    shown: dict[str, Any] = {
        "verdicts": {
            v: {"kind": _kind(v), "mark": MARKS[_kind(v)], "word": w, "means": m} for v, (w, m) in WORDS.items()
        },
        "facts": {},
        "capabilities": {},
        "chapters": {},
        "clauses": {},
        "reports": {},
        "results": {},
        "left_out": bad,
    }
    # Where reports are of several revisions, the newest one's words are shown.
    for report in sorted(found.values(), key=lambda report: report["suite"]["revision"]):
        for part in ("facts", "capabilities", "chapters"):
            shown[part] |= report[part]
        shown["clauses"] |= {c["id"]: {k: v for k, v in c.items() if k != "cases"} for c in report["clauses"]}
    for place, report in found.items():
        shown["reports"][place] = {
            k: report[k] for k in ("suite", "adapter", "environment", "run", "counts", "profiles", "occasion")
        } | {"started": report["timing"]["started"]}
        shown["results"][place] = {
            variant: _results(report, variant, folder / place, outcomes) for variant in report["adapter"]["variants"]
        }
    shown["outcomes"] = [json.loads(outcome) for outcome in outcomes]
    visible_document: dict[str, Any] = _visible(shown)
    return visible_document


def _results(report: Report, variant: str, folder: pathlib.Path, outcomes: dict[str, int]) -> dict[str, Any]:
    """Clause -> [worst verdict, [[parameters, number of the outcome], …]]."""
    found = {}
    for clause in report["clauses"]:
        cases = [case for case in clause["cases"] if case["variant"] == variant]
        if cases:
            verdict = worst(Verdict(case["verdict"]) for case in cases)
            numbers = [
                [case["parameters"], outcomes.setdefault(json.dumps(_outcome(case, folder)), len(outcomes))]
                for case in cases
            ]
            found[clause["id"]] = [verdict, numbers]
    return found


def _outcome(case: dict[str, Any], folder: pathlib.Path) -> dict[str, Any]:
    """What came of a case; what is empty, is no plain link or leads to no file is left out."""
    outcome = {k: v for k, v in case.items() if v and k not in ("case", "clause", "variant", "parameters")}
    if not LINK.fullmatch(case["link"]):
        outcome.pop("link", None)
    reproducer = case["reproducer"]
    if not FILE.fullmatch(reproducer) or not (folder / reproducer).is_file():
        outcome.pop("reproducer", None)
    return outcome


def _kind(verdict: Verdict) -> str:
    if verdict in BROKEN:
        return "broken"
    if verdict in DECLINED:
        return "declined"
    return {Verdict.PASS: "passed", Verdict.NOT_APPLICABLE: "absent"}.get(verdict, "other")


def _visible(value: Any) -> Any:
    """The value with what acts or hides written out in every text in it, keys too."""
    if isinstance(value, str):
        return printable(value, LIMIT)
    if isinstance(value, dict):
        return {printable(k, LIMIT): _visible(v) for k, v in value.items()}
    return [_visible(v) for v in value] if isinstance(value, list | tuple) else value


def _inline(value: Any) -> str:
    """JSON that cannot leave the script element that it stands in: ASCII, without <, > and &."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _digest(text: str) -> str:
    """As the page's policy names a script or a style."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
