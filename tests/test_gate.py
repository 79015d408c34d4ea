"""When a run is good: levels, profiles, the baseline of known failures, what makes an entry stale; and how it says so.

First the gate itself, on records; then runs of the suite, and what they leave for other programs to read.
"""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any
from xml.etree import ElementTree

import pytest
from hostile import HOSTILE
from running import Outcome, Suite, once

from ckptspec.conformance import baseline, gate
from ckptspec.conformance.backend import Capability
from ckptspec.conformance.baseline import BaselineError, Known
from ckptspec.conformance.case import Record, of_node
from ckptspec.conformance.clause import Clause, Level, Profile, registry
from ckptspec.conformance.gate import Expectation
from ckptspec.conformance.printable import all_printable, line, printable
from ckptspec.conformance.report import summary
from ckptspec.conformance.running import selection
from ckptspec.conformance.running.plan import Plan
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict

CLAUSES = {
    f"{level}-01": Clause(f"{level}-01", level, lambda u: None, (), frozenset(), None, 1, {}, "It holds.", "", "here")
    for level in Level
}
FAILURE = Record("MUST-01", "tape", "float64", Verdict.FAIL, label="too often", phase="backward")
KNOWN = Known("MUST-01", Verdict.FAIL, "it always did", label="too often")


def judged(*records: Record, known: list[Known] | None = None, is_whole: bool = True) -> gate.Gate:
    return gate.judge(records, CLAUSES, known or [], is_whole=is_whole)


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("level", Level)
def test_only_a_broken_must_and_our_own_errors_fail_a_run(level: Level, verdict: Verdict) -> None:
    found = judged(Record(f"{level}-01", "tape", "", verdict))

    is_bad = verdict is Verdict.ERROR or (level is Level.MUST and verdict in BROKEN | {Verdict.NOT_RUN})
    assert bool(found.problems) is is_bad


def test_a_broken_should_is_a_line() -> None:
    found = judged(Record("SHOULD-01", "tape", "", Verdict.FAIL, label="too often"))

    assert found.notes == ["SHOULD SHOULD-01[tape] FAIL (too often)"]
    assert found.problems == []


def test_a_known_failure_is_expected() -> None:
    found = judged(FAILURE, known=[KNOWN])

    assert found.problems == []
    assert found.expectations == {FAILURE.case: Expectation.KNOWN}
    assert found.reasons[FAILURE.case].reason == "it always did"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"label": "too late"},
        {"label": "", "verdict": Verdict.WRONG},
        {"label": "", "verdict": Verdict.CRASH, "signal": "SIGABRT"},
        {"label": "", "exception": "OSError"},
    ],
    ids=str,
)
def test_a_known_failure_that_fails_another_way_fails_the_run(otherwise: dict[str, Any]) -> None:
    found = judged(dataclasses.replace(FAILURE, **otherwise), known=[KNOWN])

    (problem,) = found.problems
    assert problem.startswith("MUST-01[tape-float64]")
    assert "the baseline expects FAIL too often" in problem


@pytest.mark.parametrize("verdict", [Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.REFUSED])
def test_a_known_failure_that_no_longer_fails_is_stale(verdict: Verdict) -> None:
    found = judged(dataclasses.replace(FAILURE, verdict=verdict, label="", phase=""), known=[KNOWN])

    (problem,) = found.problems
    assert problem == f"MUST-01[tape-float64] {verdict}; the baseline still expects FAIL too often"


def test_a_phase_in_the_baseline_counts() -> None:
    forward = dataclasses.replace(KNOWN, phase="forward")

    assert judged(FAILURE, known=[dataclasses.replace(KNOWN, phase="backward")]).problems == []
    assert judged(FAILURE, known=[forward]).problems != []


def test_an_error_of_ours_is_never_a_known_failure() -> None:
    assert judged(dataclasses.replace(FAILURE, verdict=Verdict.ERROR), known=[KNOWN]).problems != []


def test_an_entry_that_covers_no_case_fails_a_whole_run_only() -> None:
    elsewhere = dataclasses.replace(KNOWN, variant="other")
    passing = dataclasses.replace(FAILURE, verdict=Verdict.PASS, label="")

    assert judged(passing, known=[elsewhere]).problems == ["MUST-01: the baseline's entry covers no case"]
    assert judged(passing, known=[elsewhere], is_whole=False).problems == []


def test_globs_choose_cases_and_variants() -> None:
    entry = Known("MUST-01", Verdict.FAIL, "why", cases="float*", variant="t*", label="too often")

    assert entry.covers(FAILURE.to_json())
    assert not entry.covers(dataclasses.replace(FAILURE, parameters="int64").to_json())
    assert not entry.covers(dataclasses.replace(FAILURE, variant="other").to_json())


def test_a_clause_counts_with_its_worst_case() -> None:
    order = [
        Verdict.ERROR, Verdict.CRASH, Verdict.TIMEOUT, Verdict.WRONG, Verdict.FAIL, Verdict.NOT_RUN,
        Verdict.REFUSED, Verdict.NOT_OFFERED, Verdict.PASS, Verdict.NOT_APPLICABLE,
    ]  # fmt: skip

    assert set(order) == set(Verdict)
    assert [gate.worst(order[i:]) for i in range(len(order))] == order


# -- Inside a selected profile -----------------------------------------------------------------------------------------


PASSING = Record("MUST-02", "tape", "", Verdict.PASS)
PROFILED = {
    id: dataclasses.replace(CLAUSES[f"{id.partition('-')[0]}-01"], id=id, profile=Profile.TORCH, tests=tests)
    for id, tests in {
        "MUST-01": (Capability.EARLY_STOP,),
        "MUST-02": (),
        "MUST-03": (Capability.REENTRANT,),
        "SHOULD-01": (Capability.EARLY_STOP,),
        "MAY-01": (Capability.EARLY_STOP,),
    }.items()
}


def gated(*records: Record, known: list[Known] | None = None, **variants: list[str]) -> gate.Gate:
    """Held against the profile torch, of which every clause here is."""
    variants = {"tape": []} | variants
    return gate.judge(records, PROFILED, known or [], is_whole=True, profiles=[Profile.TORCH], variants=variants)


@pytest.mark.parametrize("verdict", sorted(DECLINED))
@pytest.mark.parametrize("level", Level)
def test_inside_a_profile_a_must_clause_may_not_be_declined(level: Level, verdict: Verdict) -> None:
    declined = Record(f"{level}-01", "tape", "", verdict)

    assert bool(gated(PASSING, declined).problems) is (level is Level.MUST)
    assert gate.judge([declined], PROFILED, [], is_whole=True).problems == []
    elsewhere = gate.judge([declined, PASSING], PROFILED, [], is_whole=True, profiles=[Profile.CORE])
    assert elsewhere.expectations[declined.case] is Expectation.AS_SPECIFIED


def test_a_baseline_may_say_that_a_clause_is_declined(tmp_path: pathlib.Path) -> None:
    known = read(tmp_path, ENTRY.replace('"FAIL"', '"NOT_OFFERED"'))
    declined = dataclasses.replace(FAILURE, verdict=Verdict.NOT_OFFERED)

    found = gated(PASSING, declined, known=known)
    assert found.problems == []
    assert found.expectations[declined.case] is Expectation.KNOWN
    for verdict in (Verdict.PASS, Verdict.REFUSED, Verdict.FAIL):
        (problem,) = gated(PASSING, dataclasses.replace(FAILURE, verdict=verdict), known=known).problems
        assert "expects NOT_OFFERED too often" in problem


def test_the_reentrant_form_is_asked_of_those_who_declare_it() -> None:
    declined, passed = (Record("MUST-03", v, "", Verdict.REFUSED) for v in ("tape", "other")), Verdict.PASS
    here, there = declined
    capability = [Capability.REENTRANT.name]

    assert gated(PASSING, here, tape=capability).problems == ["MUST-03[tape] REFUSED"]
    assert gated(PASSING, here).problems == ["MUST-03[tape] REFUSED"]
    beside = dataclasses.replace(there, verdict=passed)
    assert gated(PASSING, here, beside, other=capability).problems == []


def test_a_profile_of_which_nothing_passes_is_not_kept() -> None:
    absent = dataclasses.replace(PASSING, verdict=Verdict.NOT_APPLICABLE)
    may = Record("MAY-01", "tape", "", Verdict.PASS)

    assert gated(absent, may).problems == ["profile torch: no MUST clause of it passes on tape"]


# -- Cases that were not run -------------------------------------------------------------------------------------------


def test_cases_that_were_not_run_are_one_problem() -> None:
    records = [Record("MUST-01", "tape", str(n), Verdict.NOT_RUN) for n in range(5)]
    found = judged(*records, Record("MAY-01", "tape", "", Verdict.NOT_RUN))

    assert found.problems == ["NOT_RUN: MUST-01[tape-0], MUST-01[tape-1], MUST-01[tape-2] and 2 more, of MUST clauses"]


def test_a_known_failure_that_was_not_run_is_not_stale() -> None:
    found = judged(dataclasses.replace(FAILURE, verdict=Verdict.NOT_RUN), known=[KNOWN])

    assert found.problems == ["NOT_RUN: MUST-01[tape-float64], of MUST clauses"]


# -- The last line -----------------------------------------------------------------------------------------------------


def test_the_conclusion_says_why() -> None:
    noted = Record("SHOULD-01", "tape", "", Verdict.FAIL)
    good, bad = judged(FAILURE, noted, known=[KNOWN]), judged(FAILURE, dataclasses.replace(FAILURE, parameters="b"))

    assert gate.conclusion(good) == "as expected: 2 cases, 1 known to fail, 1 noted"
    assert gate.conclusion(good, "profile core").startswith("as expected: profile core: 2 cases")
    assert gate.conclusion(bad) == "NOT AS EXPECTED: MUST-01[tape-float64] FAIL in backward (too often) and 1 more"


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_text_of_an_implementation_is_text_to_a_terminal(text: str) -> None:
    failure = dataclasses.replace(FAILURE, label=text, message=text)

    for shown in (gate.conclusion(judged(failure)), gate.describe(failure), line(text)):
        assert shown.isprintable()
        assert len(shown) < 2100
    assert printable(text).replace("\n", "").replace("\t", "").isprintable()


def test_a_report_of_pytest_is_made_printable_in_depth() -> None:
    with pytest.raises(OSError, match="b") as caught:
        raise OSError("\x1b[31m\rb")

    shown = str(all_printable(caught.getrepr(style="long")))

    assert "\\x1b[31m\\rb" in shown
    assert shown.replace("\n", "").isprintable()


# -- Reading a baseline ------------------------------------------------------------------------------------------------


def read(tmp_path: pathlib.Path, text: str, device: str = "cpu", version: str = "2.13.0") -> list[Known]:
    path = tmp_path / "baseline.toml"
    path.write_text(text)
    return baseline.read(path, {"MUST-01"}, device, version)


ENTRY = '[[known]]\nclause = "MUST-01"\nverdict = "FAIL"\nlabel = "too often"\nreason = "it always did"\n'


def test_an_entry_reads_back(tmp_path: pathlib.Path) -> None:
    assert read(tmp_path, ENTRY) == [KNOWN]


@pytest.mark.parametrize(
    ("condition", "applies"),
    [
        ('when = "<2.14"', True),
        ('when = ">=2.14"', False),
        ('devices = ["cpu"]', True),
        ('devices = ["cuda"]', False),
    ],
)
def test_conditions_choose_entries(tmp_path: pathlib.Path, condition: str, applies: bool) -> None:
    assert bool(read(tmp_path, ENTRY + condition)) is applies


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known", "baseline.toml"),
        (ENTRY.replace("MUST-01", "MUST-99"), "there is no clause MUST-99"),
        (ENTRY.replace('"FAIL"', '"PASS"'), "verdict 'PASS' is none of"),
        (ENTRY.replace("it always did", ""), "reason is missing"),
        (ENTRY.replace("it always did", "TODO: say why"), "the reason is still to be written"),
        (ENTRY.replace("label", "lable"), "no such key: lable"),
        (ENTRY.replace('label = "too often"', ""), "say how it fails"),
        (ENTRY + 'when = "soon"', "is no version range"),
    ],
)
def test_a_mistake_in_a_baseline_is_named(tmp_path: pathlib.Path, text: str, says: str) -> None:
    with pytest.raises(BaselineError) as caught:
        read(tmp_path, text)

    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


# -- What a run selects ------------------------------------------------------------------------------------------------


def known(tmp_path: pathlib.Path, *entries: str) -> str:
    """A baseline's option; an entry is `CLAUSE VERDICT key=value …`."""
    text = ""
    for entry in entries:
        clause, verdict, *pairs = entry.split(" ")
        text += f'[[known]]\nclause = "{clause}"\nverdict = "{verdict}"\nreason = "a control"\n'
        text += "".join('{} = "{}"\n'.format(*pair.split("=")) for pair in pairs)
    (tmp_path / "known.toml").write_text(text)
    return f"--baseline={tmp_path / 'known.toml'}"


def meddling(tmp_path: pathlib.Path, text: str) -> dict[str, str]:
    """The environment in which `-p meddling` is a plugin with this text."""
    (tmp_path / "meddling.py").write_text(text)
    return {"PYTHONPATH": str(tmp_path)}


def test_the_cases_that_are_due_are_those_that_pytest_collects(suite: Suite) -> None:
    clauses = registry().values()

    outcome = suite("--collect-only", "-q", "-n0")

    found = [of_node(text, ["tape"]) for text in outcome.output.splitlines() if "::" in text]
    collected = {f"{clause.id}[{variant}] {parameters}" for clause, variant, parameters in filter(None, found)}
    due = {f"{r.clause}[{r.variant}] {r.parameters}" for r in selection.cases(clauses, ["tape"])}
    assert collected == due
    assert outcome.code == 0
    assert "ckptspec =" not in outcome.output
    assert not list(suite.folder.rglob("*.json"))  # a listing is no run


def test_a_profile_selects_its_clauses(suite: Suite) -> None:
    outcome = suite("--profile=core", "-n0", "-q")

    core = {c.id for c in registry().values() if c.profile is Profile.CORE}
    assert {case["clause"] for case in outcome.cases.values()} == core
    assert (outcome.code, outcome.path.name) == (0, "partial.json")
    assert outcome.report["run"]["profiles"] == ["core"]
    count = len(outcome.cases)
    assert outcome.last_line == f"as expected: profile core: {count} cases, {count} as specified"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--profile=nope"], "--profile=nope: no profile of that name; there are: torch, core, functional,"),
        (["--profile=core,nope"], "--profile=nope: no profile of that name"),
        (["--profile="], "--profile=: no profile of that name"),
        (["--profile=core", "--clause=SEL-*"], "--profile=core has none of the clauses --clause=SEL-*"),
        (["--summary=/nowhere/summary.md"], "--summary: /nowhere/summary.md can't be written: No such file"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(suite: Suite, options: list[str], says: str) -> None:
    outcome = suite(*options)

    (error,) = outcome.errors
    assert error.startswith(f"ERROR: {says}")
    assert outcome.code == 4
    assert not list(suite.folder.rglob("*.json"))


IN_CORE = """
import dataclasses
from ckptspec.conformance import clause

old = clause.registry()["GROUP-01"]
clause._registry["GROUP-01"] = dataclasses.replace(old, profile=clause.Profile.CORE)
"""


def test_a_gate_on_a_profile_takes_a_baseline(suite: Suite, tmp_path: pathlib.Path) -> None:
    """With a clause in core that the tape declines."""
    common = "--profile=core", "--clause=G*-01", "-n0", "-p", "meddling"
    variables = meddling(tmp_path, IN_CORE)

    plain = suite(*common, **variables)
    listed = suite(*common, known(tmp_path, "GROUP-01 REFUSED exception=TypeError"), **variables)
    stale = suite(*common, known(tmp_path, "GRAD-01 REFUSED exception=OSError"), **variables)

    assert plain.code == 1
    assert plain.last_line.startswith("NOT AS EXPECTED: GROUP-01[tape] REFUSED ")
    assert listed.code == 0, listed.output
    assert listed.last_line == "as expected: profile core, --clause=G*-01: 3 cases, 2 as specified, 1 known to fail"
    assert stale.code == 1
    assert "GRAD-01[tape-float64] PASS; the baseline still expects REFUSED OSError" in stale.output


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_what_the_first_failure_leaves_out_is_not_run(suite: Suite, workers: str) -> None:
    outcome = suite("--clause=GRAD-*", "-x", workers, adapter="tests/controls.py:controls")

    first, *others = (text for text in outcome.output.splitlines() if text.startswith("  ✗ "))
    assert outcome.code == 1
    assert others[-1].startswith("  ✗ NOT_RUN: ")
    assert outcome.last_line == f"NOT AS EXPECTED: {first.removeprefix('  ✗ ')[:200]} and {len(others)} more"
    assert (outcome.path.name, outcome.report["run"]["complete"]) == ("partial.json", False)


DESELECTING = """
def pytest_collection_modifyitems(config, items):
    gone = [item for item in items if "float32" in item.nodeid]
    items[:] = [item for item in items if item not in gone]
    config.hook.pytest_deselected(items=gone)
"""


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_what_a_plugin_deselects_is_not_run(suite: Suite, tmp_path: pathlib.Path, workers: str) -> None:
    outcome = suite("--clause=GRAD-01", workers, "-p", "meddling", **meddling(tmp_path, DESELECTING))

    assert outcome.code == 1
    assert outcome.last_line == "NOT AS EXPECTED: NOT_RUN: GRAD-01[tape-float32], of MUST clauses"
    assert outcome.verdicts == {"GRAD-01[tape-float32]": "NOT_RUN", "GRAD-01[tape-float64]": "PASS"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-k", "float64"], "-k float64"),
        (
            ["--deselect=conformance/test_grad.py::test_values_and_gradients_equal_the_plain_run[tape-float32]"],
            "deselect",
        ),
    ],
    ids=["-k", "--deselect"],
)
def test_who_narrows_a_run_is_told_so(suite: Suite, options: list[str], said: str) -> None:
    outcome = suite("--clause=GRAD-01", "-n0", *options)

    assert outcome.code == 0
    assert outcome.last_line == f"as expected: --clause=GRAD-01, {said}: 1 cases, 1 as specified"
    assert outcome.path.name == "partial.json"


@pytest.mark.parametrize(
    ("records", "is_whole", "said"),
    [
        ([], False, "no case was selected"),
        ([dataclasses.replace(PASSING, verdict=Verdict.NOT_APPLICABLE)], True, "no case passes"),
        ([dataclasses.replace(PASSING, verdict=Verdict.NOT_APPLICABLE)], False, ""),
        ([PASSING], True, ""),
    ],
)
def test_a_run_that_shows_nothing_is_not_good(records: list[Record], is_whole: bool, said: str) -> None:
    assert gate.vacuous(records, is_whole=is_whole) == said


def test_only_a_run_of_every_case_of_every_variant_is_whole() -> None:
    plan = object.__new__(Plan)
    plan.clauses, plan.variants = registry(), ["one", "two"]
    records = selection.cases(plan.clauses.values(), plan.variants)
    passed = [dataclasses.replace(record, verdict=Verdict.PASS) for record in records]

    assert plan.is_everything(passed)
    assert not plan.is_everything([record for record in passed if record.variant == "one"])
    assert not plan.is_everything(passed[1:])
    assert not plan.is_everything([*passed[1:], records[0]])


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_tests_of_their_own_may_run_beside_it(suite: Suite, tmp_path: pathlib.Path, workers: str) -> None:
    path = tmp_path / "test_theirs.py"
    path.write_text("def test_good(): pass\ndef test_bad(): assert False\n")

    good, both = (suite("--clause=GRAD-02", f"{path}{name}", workers) for name in ("::test_good", ""))

    assert good.code == 0, good.output
    assert both.code == 1
    assert both.last_line.endswith("::test_bad failed, which is no clause")


# -- What a run leaves for other programs ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """A run with a known crash, an unknown one, a failure, a skip and passes, and everything that it can write."""

    def make(folder: pathlib.Path) -> Outcome:
        folder.mkdir()
        (folder / "summary.md").write_text("# Another step\n")
        return Suite(folder)(
            *("--clause=GRAD-0[16]", "-n1", "-q", "-k", "abort or kill or sys"),
            *(f"--junitxml={folder / 'junit.xml'}", f"--summary={folder / 'summary.md'}"),
            known(folder, "GRAD-01 CRASH signal=SIGABRT variant=abort cases=float64"),
            adapter="tests/controls.py:killers",
        )

    return once(tmp_path_factory, "killed", make)


def test_the_last_line_is_the_verdict_whatever_else_is_printed(killed: Outcome) -> None:
    assert killed.last_line.startswith("NOT AS EXPECTED: GRAD-01[")
    assert killed.last_line.endswith(" and 1 more")
    assert killed.code == 1


def test_junit_xml_has_a_testcase_a_case_with_its_clause(killed: Outcome) -> None:
    (tests,) = ElementTree.parse(killed.folder / "junit.xml").getroot()
    cases: dict[str, tuple[dict[str, str], list[str]]] = {}
    for case in tests.iter("testcase"):
        said = {p.attrib["name"]: p.attrib["value"] for p in case.iter("property")}
        variant = case.attrib["name"].partition("[")[2].removesuffix("]")
        cases[f"{said['clause']}[{variant}]"] = said, [child.tag for child in case if child.tag != "properties"]

    assert set(cases) == set(killed.cases)
    tags = {"unexpected": ["failure"], "known failure": ["skipped"]}
    for name, (said, found) in cases.items():
        case = killed.cases[name]
        cause = case["label"] or case["exception"] or case["signal"]
        assert said == {
            "clause": case["clause"],
            "level": "MUST",
            "verdict": case["verdict"],
            "expectation": case["expectation"],
            "label": cause,
        }
        assert found == tags.get(case["expectation"], [] if case["verdict"] == "PASS" else ["skipped"])
    counts = {verdict: sum(s["verdict"] == verdict for s, _ in cases.values()) for verdict in killed.verdicts.values()}
    assert counts == {"CRASH": 2, "FAIL": 1, "PASS": 3, "N/A": 3}
    assert {"failures": "2", "errors": "0", "skipped": "4", "tests": "9"}.items() <= tests.attrib.items()
    failure = next(f for f in tests.iter("failure") if "SIGKILL" in f.attrib["message"])
    assert failure.attrib["message"] == "CRASH (SIGKILL: the process ended with SIGKILL)"


def test_the_summary_is_appended(killed: Outcome) -> None:
    first, title, _, conclusion, _, head, _, *rows = (killed.folder / "summary.md").read_text().splitlines()

    assert (first, title) == ("# Another step", "## ckptspec: killers 1, cpu")
    assert conclusion.startswith("**NOT AS EXPECTED: GRAD-01&#91;")
    columns = [cell.strip() for cell in head.split("|")]
    row = dict(zip(columns, [cell.strip() for cell in rows[0].split("|")], strict=True))
    assert (row["variant"], row["cases"], row["passed"], row["known failures"]) == ("abort", "3", "1", "1")
    assert "| GRAD-01&#91;kill-float64&#93; | MUST | CRASH | SIGKILL | the process ended with SIGKILL |  |" in rows
    folded = rows.index("<details><summary>1 known failures</summary>")
    assert rows[folded + 1] == ""
    assert any("abort-float64" in row and "| a control |" in row for row in rows[folded:])
    assert "</details>" in rows


def test_a_summary_is_not_longer_than_a_page_takes() -> None:
    cases = [{"case": f"A[{n}]", "link": "", "label": "x" * 9000, "message": "y" * 9000} for n in range(5000)]
    filled = [c | {"verdict": "FAIL", "phase": "", "reason": ""} for c in cases]

    text = "\n".join(summary._table([({"level": "MUST"}, case) for case in filled]))

    assert len(text) < 200_000
    assert text.endswith("and 4900 more, in the report")
