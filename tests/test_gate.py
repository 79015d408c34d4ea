"""When a run is good: levels, the baseline of known failures, and what makes an entry stale."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import pytest

from ckptspec.conformance import baseline, gate
from ckptspec.conformance.baseline import BaselineError, Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause, Level
from ckptspec.conformance.gate import Expectation
from ckptspec.conformance.verdict import BROKEN, Verdict

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
