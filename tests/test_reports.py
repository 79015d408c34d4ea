"""report.json fits its schema, is whole or rejected, and is written at once or not at all; the matrix is text only."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import pathlib
import re
from typing import Any

import pytest
from hostile import HOSTILE, HUGE
from running import CHECKOUT, Outcome, Suite, once

from ckptspec.conformance import witnessed
from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.baseline import Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause, Level, Profile, registry
from ckptspec.conformance.gate import Expectation, judge
from ckptspec.conformance.report import model, render
from ckptspec.conformance.report.model import ReportError
from ckptspec.conformance.verdict import Verdict

SCHEMA: dict[str, Any] = json.loads((CHECKOUT / "conformance" / "report" / "report.schema.json").read_text())


def holds(under_test: object) -> None:
    """The function of every clause here."""


holds.__name__ = "test_it"

CLAUSES = {
    f"GRAD-0{n}": Clause(f"GRAD-0{n}", Level.MUST, holds, (), frozenset(), Profile.CORE, 1, {}, "It holds.", "", "here")
    for n in range(1, 5)
}


def built(*records: Record, name: str = "tape", version: str = "1", known: list[Known] | None = None) -> model.Report:
    """A report as a run builds it."""
    return model.build(
        description={
            "name": name,
            "version": version,
            "host": {"name": "tape", "version": "2", "facts": ["EAGER"]},
            "variants": {"only": ["KEYWORDS"]},
            "environment": {"python": "3"},
        },
        source={"asked": "tape.py:adapter", "sha256": ""},
        clauses=CLAUSES,
        records=records,
        gate=judge(records, CLAUSES, known or [], is_whole=True),
        run={"device": "cpu", "clauses": [], "profiles": [], "isolated": True, "complete": True, "good": True},
        started=datetime.datetime.now(datetime.UTC),
    )


PASS = Record("GRAD-01", "only", "", Verdict.PASS)
FAIL = Record("GRAD-02", "only", "", Verdict.FAIL, label="too often", message="too often")


@pytest.fixture(scope="module")
def tape_run(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return once(tmp_path_factory, "whole-run", lambda folder: Suite(folder)())


@pytest.fixture(scope="module")
def controls_run(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    def make(folder: pathlib.Path) -> Outcome:
        return Suite(folder)("-n0", "--tb=native", "--clause=[D-R]*-0[1-2]", adapter="tests/controls.py:controls")

    return once(tmp_path_factory, "many-verdicts", make)


# -- The schema --------------------------------------------------------------------------------------------------------


def validate(report: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(SCHEMA).validate(report)


def test_the_schema_is_one() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_real_reports_are_valid(tape_run: Outcome, controls_run: Outcome) -> None:
    validate(tape_run.report)
    validate(controls_run.report)


@pytest.mark.parametrize("path", sorted(CHECKOUT.glob("reports/*/*/report.json")), ids=lambda p: p.parts[-3])
def test_committed_reports_are_valid_and_whole(path: pathlib.Path) -> None:
    validate(model.load(path))


def objects(schema: Any) -> list[dict[str, Any]]:
    inner = schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ()
    found = [o for value in inner for o in objects(value)]
    return [schema, *found] if isinstance(schema, dict) and schema.get("type") == "object" else found


def test_the_schema_allows_nothing_that_it_does_not_describe() -> None:
    assert all("additionalProperties" in found for found in objects(SCHEMA))


def test_what_the_schema_lists_is_what_there_is() -> None:
    defs = SCHEMA["$defs"]

    assert defs["verdict"]["enum"] == [str(v) for v in Verdict]
    assert defs["level"]["enum"] == [str(v) for v in Level]
    assert defs["profile"]["enum"] == [str(p) for p in Profile]
    assert defs["case"]["properties"]["expectation"]["enum"] == [str(v) for v in Expectation]
    assert SCHEMA["properties"]["schema"]["const"] == model.SCHEMA
    assert all(re.fullmatch(defs["constant"]["pattern"], c.name) for c in [*Fact, *Capability])


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("surprise",), 1),
        (("adapter", "surprise"), 1),
        (("clauses", 0, "cases", 0, "surprise"), 1),
        (("clauses", 0, "cases", 0, "verdict"), "FINE"),
        (("clauses", 0, "level"), "OUGHT"),
        (("footer", "sha256"), "0"),
        (("run", "good"), "yes"),
    ],
    ids=str,
)
def test_a_report_with_something_else_in_it_is_invalid(place: tuple[Any, ...], value: object) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    report = built(PASS)
    validate(json.loads(model.dump(report)))
    *way, last = place
    inner: Any = report
    for step in way:
        inner = inner[step]
    inner[last] = value

    with pytest.raises(jsonschema.ValidationError):
        validate(json.loads(model.dump(report)))


# -- What stands in it -------------------------------------------------------------------------------------------------


def test_counts_are_of_clauses_by_their_worst_case() -> None:
    cases = [Record("GRAD-01", "only", p, v) for p, v in (("a", Verdict.PASS), ("b", Verdict.WRONG))]

    report = built(*cases, FAIL, Record("GRAD-03", "only", "", Verdict.PASS))

    assert report["counts"] == {"only": {"MUST": {"FAIL": 1, "PASS": 1, "WRONG": 1}}}
    assert report["footer"]["cases"] == 4


def test_a_profile_is_kept_if_its_clauses_pass_or_say_nothing() -> None:
    def kept(*verdicts: Verdict) -> bool:
        records = [Record(name, "only", "", v) for name, v in zip(CLAUSES, verdicts, strict=False)]
        return bool(built(*records)["profiles"]["only"]["core"])

    yes, no_opinion = Verdict.PASS, Verdict.NOT_APPLICABLE
    assert kept(yes, yes, yes, yes)
    assert kept(yes, no_opinion, yes, no_opinion)
    assert not kept(no_opinion, no_opinion, no_opinion, no_opinion)
    assert not kept(yes, yes, yes)  # a clause of it was not run
    for verdict in set(Verdict) - {yes, no_opinion}:
        assert not kept(yes, yes, yes, verdict)


def test_no_profile_is_kept_without_core() -> None:
    clauses = CLAUSES | {"DECO-01": dataclasses.replace(CLAUSES["GRAD-01"], id="DECO-01", profile=Profile.FUNCTIONAL)}
    good = [Record(name, "only", "", Verdict.PASS) for name in clauses]
    bad = [dataclasses.replace(r, verdict=Verdict.FAIL) if r.clause == "GRAD-02" else r for r in good]

    assert model._profiles({"only": []}, good, clauses) == {"only": {"core": True, "functional": True}}
    assert model._profiles({"only": []}, bad, clauses) == {"only": {"core": False, "functional": False}}


@pytest.mark.parametrize(
    ("declined", "of_another", "is_kept"),
    [
        (Verdict.REFUSED, Verdict.PASS, True),
        (Verdict.NOT_OFFERED, Verdict.PASS, True),
        (Verdict.FAIL, Verdict.PASS, False),
        (Verdict.WRONG, Verdict.PASS, False),
        (Verdict.REFUSED, Verdict.REFUSED, False),
        (Verdict.REFUSED, Verdict.NOT_APPLICABLE, False),
    ],
)
def test_a_clause_about_the_reentrant_form_may_be_declined_beside_a_reentrant_form_that_passes(
    declined: Verdict, of_another: Verdict, is_kept: bool
) -> None:
    about = dataclasses.replace(CLAUSES["GRAD-02"], tests=(Capability.REENTRANT,))
    clauses = {"GRAD-01": CLAUSES["GRAD-01"], "GRAD-02": about}
    records = [
        Record("GRAD-01", "non-reentrant", "", Verdict.PASS),
        Record("GRAD-02", "non-reentrant", "", declined),
        Record("GRAD-01", "reentrant", "", Verdict.PASS),
        Record("GRAD-02", "reentrant", "", of_another),
    ]

    def kept(*declaring: str) -> bool:
        variants = {v: ["REENTRANT"] if v in declaring else [] for v in ("non-reentrant", "reentrant")}
        return model._profiles(variants, records, clauses)["non-reentrant"]["core"]

    assert kept("reentrant") is is_kept
    assert not kept("reentrant", "non-reentrant")  # what is declared may not be declined


def test_only_what_tests_the_reentrant_form_may_be_declined(tmp_path: pathlib.Path) -> None:
    records = [
        *(
            Record(name, "non-reentrant", "", Verdict.REFUSED if name == "GRAD-02" else Verdict.PASS)
            for name in CLAUSES
        ),
        *(Record(name, "reentrant", "", Verdict.PASS) for name in CLAUSES),
    ]

    kept = model._profiles({"non-reentrant": [], "reentrant": ["REENTRANT"]}, records, CLAUSES)

    assert kept == {"non-reentrant": {"core": False}, "reentrant": {"core": True}}


def test_what_differs_between_equal_runs_is_apart() -> None:
    first, second = built(PASS), built(Record("GRAD-01", "only", "", Verdict.PASS, seconds=3.0))

    assert first["footer"] == second["footer"]
    assert first["timing"] != second["timing"]


def test_a_report_says_what_its_words_mean() -> None:
    report = built(PASS)
    (clause,) = report["clauses"]

    assert report["chapters"] == {"GRAD": "gradients of the first order"}
    assert report["facts"]["EAGER"] == Fact.EAGER.value
    assert report["capabilities"]["KEYWORDS"] == Capability.KEYWORDS.value
    assert (clause["not_promised"], clause["source"]) == ("", "here")


def test_a_clause_names_the_faults_on_which_it_was_seen_failing(monkeypatch: pytest.MonkeyPatch) -> None:
    kills = {"GRAD-01": [{"witness": "a_fault", "verdict": "FAIL", "how": "it failed"}], "GRAD-02": []}
    monkeypatch.setattr(witnessed, "committed", lambda: kills)

    assert [c["witnesses"] for c in built(PASS, FAIL, known=[])["clauses"]] == [["a_fault"], []]


def test_each_must_clause_has_a_witness_on_file() -> None:
    names = witnessed.names()
    assert [c.id for c in registry().values() if c.level is Level.MUST and not names.get(c.id)] == []


def test_a_known_failure_brings_its_reason() -> None:
    known = Known("GRAD-02", Verdict.FAIL, "it always did", label="too often", link="https://example.org/1")
    (case,) = built(FAIL, known=[known])["clauses"][0]["cases"]

    assert (case["expectation"], case["reason"], case["link"]) == (
        "known failure",
        "it always did",
        "https://example.org/1",
    )


def test_an_adapter_given_by_path_is_named_without_its_folder_and_with_its_digest(tape_run: Outcome) -> None:
    adapter = tape_run.report["adapter"]

    assert adapter["asked"] == "tape.py:adapter"
    assert re.fullmatch("[0-9a-f]{64}", adapter["sha256"])


# -- Whole or rejected -------------------------------------------------------------------------------------------------


def test_a_report_reads_back(tmp_path: pathlib.Path) -> None:
    report = built(PASS, FAIL)
    model.write(tmp_path / "report.json", model.dump(report))

    assert model.load(tmp_path / "report.json") == json.loads(model.dump(report))


def without_footer(report: model.Report) -> None:
    del report["footer"]


def without_last_case(report: model.Report) -> None:
    report["clauses"].pop()


def with_better_verdict(report: model.Report) -> None:
    report["clauses"][-1]["cases"][0]["verdict"] = "PASS"


def of_another_adapter(report: model.Report) -> None:
    report["adapter"]["version"] = "9"


def of_another_revision(report: model.Report) -> None:
    report["suite"]["revision"] += 1


def as_if_as_expected(report: model.Report) -> None:
    report["run"]["good"] = not report["run"]["good"]


EDITS = [
    without_footer, without_last_case, with_better_verdict, of_another_adapter, of_another_revision, as_if_as_expected
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_report_is_rejected(tmp_path: pathlib.Path, edit: Any) -> None:
    report = built(PASS, FAIL)
    edit(report)
    (tmp_path / "report.json").write_text(model.dump(report))

    with pytest.raises(ReportError, match=r"report\.json is not whole"):
        model.load(tmp_path / "report.json")


def test_a_report_of_another_version_is_rejected(tmp_path: pathlib.Path) -> None:
    report = built(PASS, FAIL)
    del report["chapters"], report["clauses"][1]["witnesses"], report["clauses"][1]["cases"][0]["reproducer"]
    report["footer"] = model._footer(report)
    (tmp_path / "report.json").write_text(model.dump(report))

    said = r"report\.json is of another version of the suite: it has no chapters, witnesses, reproducer$"
    with pytest.raises(ReportError, match=said):
        model.load(tmp_path / "report.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": "another/1"}', "\x00"])
def test_what_is_no_report_is_rejected(tmp_path: pathlib.Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text)

    with pytest.raises(ReportError, match=r"report\.json is no report"):
        model.load(tmp_path / "report.json")


def test_a_truncated_report_is_rejected_wherever_it_ends(tmp_path: pathlib.Path) -> None:
    text = model.dump(built(PASS, FAIL))
    for end in range(0, len(text) - 2, 97):
        (tmp_path / "report.json").write_text(text[:end])
        with pytest.raises(ReportError):
            model.load(tmp_path / "report.json")


# -- Written at once or not at all -------------------------------------------------------------------------------------


def test_a_written_report_leaves_nothing_beside_it(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "deep" / "report.json"
    model.write(path, "first")
    model.write(path, "second")

    assert path.read_text() == "second"
    assert [p.name for p in path.parent.iterdir()] == ["report.json"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_write_that_fails_keeps_the_previous_report(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "report.json"
    model.write(path, "first")
    monkeypatch.setattr(os, "replace", fails)

    with pytest.raises(ReportError, match=r"report\.json can't be written: No space left on device"):
        model.write(path, "second")
    assert path.read_text() == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["report.json"]


def test_a_run_of_some_clauses_never_replaces_the_report_of_all(suite: Suite, tape_run: Outcome) -> None:
    whole = tape_run.path
    before = whole.read_bytes(), (tape_run.folder / "README.md").read_bytes()

    partial = Suite(tape_run.folder)("--clause=GRAD-01", "-n0")

    assert partial.code == 0
    assert (whole.read_bytes(), (tape_run.folder / "README.md").read_bytes()) == before
    assert whole.name == "report.json"
    (whole.parent / "partial.json").unlink()


def test_a_run_leaves_its_report_and_the_matrix_and_nothing_else(tape_run: Outcome) -> None:
    files = {str(p.relative_to(tape_run.folder)) for p in tape_run.folder.rglob("*") if p.is_file()}

    assert files - {"tape/cpu/partial.json"} == {"README.md", "index.html", "tape/cpu/report.json"}
    assert tape_run.report["run"]["complete"] is True


# -- The matrix --------------------------------------------------------------------------------------------------------


def matrix(tmp_path: pathlib.Path, *reports: model.Report) -> str:
    for number, report in enumerate(reports):
        model.write(tmp_path / f"adapter{number}" / "cpu" / "report.json", model.dump(report))
    return render.matrix(tmp_path)


def test_the_matrix_counts_passed_applicable_and_stated(tmp_path: pathlib.Path) -> None:
    text = matrix(tmp_path, built(PASS, FAIL, Record("GRAD-03", "only", "", Verdict.NOT_APPLICABLE)))

    assert "| GRAD | 1 / 2 / 3 ✗ |" in text
    assert "| **all** | 1 / 2 / 3 ✗ |" in text
    assert "| profiles kept | none |" in text
    assert "| GRAD-02&#91;only&#93; | MUST | FAIL (unexpected) | too often |  |" in text
    assert "Not applicable: GRAD-03." in text


def test_the_matrix_names_a_report_that_is_not_whole(tmp_path: pathlib.Path) -> None:
    report = built(PASS, name="other")
    without_footer(report)

    text = matrix(tmp_path, built(PASS), report)

    assert "Left out:" in text
    assert "is not whole" in text
    assert str(tmp_path) not in text


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_text_of_an_implementation_stays_text(tmp_path: pathlib.Path, text: str) -> None:
    failure = Record("GRAD-02", "only", text, Verdict.FAIL, label=text, message=text)
    known = Known("GRAD-02", Verdict.FAIL, text, label=text, link=text)
    plain = matrix(tmp_path, built(PASS, FAIL))

    drawn = matrix(tmp_path, built(PASS, failure, name=text, version=text, known=[known]))

    assert drawn.count("\n") == plain.count("\n")
    assert [line.count("|") for line in drawn.splitlines()] == [line.count("|") for line in plain.splitlines()]
    body = drawn.removeprefix(render.HEAD)
    assert not re.search(r"[<>`~$@]|://|www\.", body)
    assert all(c.isprintable() for c in body.replace("\n", ""))
    assert "](" not in body
    assert max(map(len, body.splitlines())) < 3000


def test_the_matrix_is_what_markdown_makes_of_it(tmp_path: pathlib.Path) -> None:
    """A real parser finds in hostile texts nothing but text."""
    markdown = pytest.importorskip("markdown_it").MarkdownIt("commonmark", {"html": True})
    everything = " ".join(HOSTILE.values())
    failure = Record("GRAD-02", "only", everything, Verdict.FAIL, label=everything, message=everything)
    known = Known("GRAD-02", Verdict.FAIL, everything, label=everything)

    drawn = markdown.enable(["table", "strikethrough"]).render(
        matrix(tmp_path, built(PASS, failure, name=everything, version=everything, known=[known]))
    )

    tags = set(re.findall(r"<(\w+)", drawn.partition("<table>")[2]))
    assert tags <= {"h2", "p", "table", "thead", "tbody", "tr", "th", "td", "strong"}
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in drawn


def test_a_huge_text_is_cut_off_in_the_matrix(tmp_path: pathlib.Path) -> None:
    failure = Record("GRAD-02", "only", "", Verdict.FAIL, label=HUGE, message=HUGE)

    assert len(matrix(tmp_path, built(PASS, failure))) < 10_000


def test_only_plain_https_links_become_links(tmp_path: pathlib.Path) -> None:
    for link, is_link in (
        ("https://github.com/pytorch/pytorch/issues/1#issuecomment-2", True),
        ("http://example.org", False),
        ("javascript:alert(1)", False),
        ("https://example.org/) [x](javascript:alert(1)", False),
        ("https://example.org/\n", False),
    ):
        known = Known("GRAD-02", Verdict.FAIL, "why", label="too often", link=link)
        assert (f"[report]({link})" in matrix(tmp_path, built(FAIL, known=[known]))) is is_link


def test_hostile_text_survives_in_report_json(tmp_path: pathlib.Path) -> None:
    everything = "".join(HOSTILE.values())
    report = built(Record("GRAD-02", "only", "", Verdict.FAIL, label=everything, message="\ud800"))
    model.write(tmp_path / "report.json", model.dump(report))

    (case,) = model.load(tmp_path / "report.json")["clauses"][0]["cases"]
    assert (case["label"], case["message"]) == (everything, "\ud800")
    assert (tmp_path / "report.json").read_bytes().isascii()
