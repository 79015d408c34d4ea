"""`ckptspec diff`: which change is a regression, what can't be compared, and what it exits with."""

from __future__ import annotations

import json
import pathlib

import pytest
from invoking import ckptspec, record, refused, report, saved

from ckptspec.conformance.report.difference import HARM, Change, compare
from ckptspec.conformance.verdict import Verdict

UNOBSERVED = (Verdict.NOT_APPLICABLE, Verdict.NOT_RUN, Verdict.ERROR)
PASS = record("GRAD-01", Verdict.PASS)
FAIL = record("GRAD-01", Verdict.FAIL, "too often")


def changed(before: Verdict, after: Verdict) -> Change | None:
    """How a case's change of verdict is called; None if it is none."""
    found = compare(*(report(record("GRAD-01", verdict)) for verdict in (before, after)))
    return found.differences[0].change if found.differences else None


def test_every_verdict_is_in_the_order_of_harm_or_was_not_observed() -> None:
    ranked = [verdict for verdicts in HARM for verdict in verdicts]

    assert {*ranked, *UNOBSERVED} == set(Verdict)
    assert len(ranked) + len(UNOBSERVED) == len(Verdict)


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (Verdict.PASS, Verdict.REFUSED, Change.REGRESSED),
        (Verdict.PASS, Verdict.WRONG, Change.REGRESSED),
        (Verdict.REFUSED, Verdict.WRONG, Change.REGRESSED),
        (Verdict.REFUSED, Verdict.FAIL, Change.REGRESSED),
        (Verdict.FAIL, Verdict.CRASH, Change.REGRESSED),
        (Verdict.CRASH, Verdict.WRONG, Change.REGRESSED),
        (Verdict.WRONG, Verdict.FAIL, Change.IMPROVED),
        (Verdict.FAIL, Verdict.REFUSED, Change.IMPROVED),
        (Verdict.WRONG, Verdict.PASS, Change.FIXED),
        (Verdict.NOT_OFFERED, Verdict.PASS, Change.FIXED),
        (Verdict.REFUSED, Verdict.NOT_OFFERED, Change.CHANGED),
        (Verdict.CRASH, Verdict.TIMEOUT, Change.CHANGED),
        (Verdict.PASS, Verdict.PASS, None),
        (Verdict.NOT_APPLICABLE, Verdict.NOT_APPLICABLE, None),
    ],
)
def test_the_change_of_a_verdict(before: Verdict, after: Verdict, change: Change | None) -> None:
    assert changed(before, after) == change


@pytest.mark.parametrize("unobserved", UNOBSERVED)
@pytest.mark.parametrize("other", [verdict for verdicts in HARM for verdict in sorted(verdicts)])
def test_where_nothing_was_observed_nothing_is_compared(unobserved: Verdict, other: Verdict) -> None:
    assert changed(unobserved, other) == changed(other, unobserved) == Change.NOT_COMPARABLE


def test_a_failure_that_fails_another_way_has_changed() -> None:
    (found,) = compare(report(FAIL), report(record("GRAD-01", Verdict.FAIL, "too late"))).differences

    assert (found.change, found.before, found.after) == (Change.CHANGED, "FAIL too often", "FAIL too late")


def test_cases_of_new_and_removed_clauses() -> None:
    found = compare(report(PASS, record("GRAD-02", Verdict.PASS)), report(PASS, record("GRAD-03", Verdict.FAIL)))

    assert [(d.change, d.case) for d in found.differences] == [
        (Change.REMOVED, "GRAD-02[only]"),
        (Change.NEW, "GRAD-03[only]"),
    ]
    assert found.same == 1


def test_a_clause_that_says_something_else_is_not_compared() -> None:
    reworded = report(FAIL)
    reworded["clauses"][0]["sentence"] = "It holds on Sundays."

    (found,) = compare(report(PASS), reworded).differences

    assert (found.change, found.why) == (Change.NOT_COMPARABLE, "the clause says or tests something else")


def test_another_revision_of_the_specification_is_not_compared() -> None:
    later = report(FAIL)
    later["suite"]["revision"] += 1

    found = compare(report(PASS), later)

    assert found.differences == []
    assert found.obstacles == ["the specification's revisions differ: 1 and 2"]


def test_what_an_incomplete_report_lacks_is_not_removed() -> None:
    found = compare(report(PASS, record("GRAD-02", Verdict.PASS)), report(PASS, is_complete=False))

    assert [d.change for d in found.differences] == [Change.NOT_COMPARABLE]
    assert "the second report is of some clauses only" in found.obstacles[0]


def test_only_variants_that_both_have_are_compared() -> None:
    other = record("GRAD-01", Verdict.FAIL, variant="other")

    found = compare(report(PASS), report(PASS, other, variants=["only", "other"]))

    assert (found.differences, found.same) == ([], 1)
    assert found.obstacles == ["the variants differ: only and only, other"]


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ([PASS], [PASS], 0),
        ([FAIL], [PASS], 0),
        ([PASS], [PASS, record("GRAD-02", Verdict.FAIL)], 0),
        ([PASS], [FAIL], 1),
        ([PASS, record("GRAD-02", Verdict.PASS)], [PASS], 3),
        ([PASS, record("GRAD-02", Verdict.PASS)], [FAIL], 1),
        ([record("GRAD-01", Verdict.NOT_APPLICABLE)], [PASS], 3),
    ],
)
def test_the_exit_code(tmp_path: pathlib.Path, before: list[object], after: list[object], code: int) -> None:
    paths = [saved(tmp_path / name, report(*records)) for name, records in (("a", before), ("b", after))]  # type: ignore[arg-type]

    assert ckptspec("diff", *paths).exit_code == code


def test_a_folder_stands_for_the_report_in_it(tmp_path: pathlib.Path) -> None:
    saved(tmp_path / "a" / "mylib" / "cpu", report(PASS))
    saved(tmp_path / "b", report(FAIL))

    result = ckptspec("diff", tmp_path / "a", tmp_path / "b")

    assert result.stdout.splitlines() == [
        "from mylib 1, cpu to mylib 1, cpu",
        "regressed\tGRAD-01[only]\tMUST\tPASS\tFAIL too often\t",
        "regressed: 1 regressed, 0 the same",
    ]


def test_json_and_markdown(tmp_path: pathlib.Path) -> None:
    hostile = record("GRAD-01", Verdict.FAIL, "a | <b> [c](javascript:d)\n\x1b[31m")
    paths = saved(tmp_path / "a", report(PASS)), saved(tmp_path / "b", report(hostile, name="a|b"))

    data = json.loads(ckptspec("diff", *paths, "--json").stdout)
    markdown = ckptspec("diff", *paths, "--markdown").stdout

    assert (data["outcome"], data["counts"]) == ("regressed", {"regressed": 1, "same": 0})
    assert data["differences"][0]["case"] == "GRAD-01[only]"
    assert markdown.startswith("**regressed: 1 regressed, 0 the same**\n")
    (row,) = [line for line in markdown.splitlines() if line.startswith("| GRAD")]
    assert row.count("|") == 6
    assert not set("<>\x1b") & set(markdown)
    assert "](" not in markdown
    assert "choose one" in refused("diff", *paths, "--markdown", "--json")


@pytest.mark.parametrize("text", ["", "{}", '{"schema": "ckptspec-report/1"}', "[" * 100_000, "\x00"])
def test_what_is_no_report_is_told_in_a_line(tmp_path: pathlib.Path, text: str) -> None:
    good, bad = saved(tmp_path / "a", report(PASS)), tmp_path / "b.json"
    bad.write_text(text)

    assert str(bad) in refused("diff", good, bad)


def test_a_report_that_is_not_there_is_told_with_those_that_are(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "reports" / "mylib" / "cpu", report(PASS))

    assert "nearest: reports/mylib/cpu/report.json" in refused("diff", "reports/mylib/cup", "reports")
    assert refused("diff", tmp_path / "reports", pathlib.Path(__file__).parent).startswith(
        "there is no report.json in "
    )
