"""The controls score as predicted: the suite tells each fault, on the tape and on torch."""

from __future__ import annotations

import importlib.util
import pathlib
import re

import pytest
from controls import CONTROLS
from running import Outcome, Suite, once

from ckptspec.conformance.clause import Level, Profile, registry
from ckptspec.conformance.verdict import BROKEN


def failing(outcome: Outcome, control: str) -> dict[str, str]:
    """The cases that a control breaks, with their labels."""
    return {
        case["case"]: case["label"] or case["exception"]
        for case in outcome.cases.values()
        if case["variant"] == control and case["verdict"] in BROKEN
    }


def passing(outcome: Outcome, control: str) -> list[str]:
    return [c["clause"] for c in outcome.cases.values() if c["variant"] == control and c["verdict"] == "PASS"]


@pytest.fixture(scope="module")
def on_the_tape(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    chosen = [f"--clause={chapter}-*" for chapter in ("GRAD", "IO", "RNG", "DECO", "STOP", "DET", "NEST", "SEL", "MEM")]
    return once(
        tmp_path_factory,
        "controls-on-the-tape",
        lambda folder: Suite(folder)("-n0", "--tb=native", *chosen, adapter="tests/controls.py:controls"),
    )


@pytest.fixture(scope="module")
def on_torch(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    chosen = [f"--clause={name}" for name in ("GRAD-0[1-3]", "GRAD-13", "MEM-01", "MEM-09", "STOP-01", "DECO-01")]
    return once(
        tmp_path_factory,
        "controls-on-torch",
        lambda folder: Suite(folder)("-n0", "--tb=native", *chosen, adapter="tests/torch_controls.py:controls"),
    )


@pytest.fixture(params=["on_the_tape", "on_torch"])
def outcome(request: pytest.FixtureRequest) -> Outcome:
    found: Outcome = request.getfixturevalue(request.param)
    return found


def test_the_right_implementation_keeps_every_clause_of_its_host(tmp_path: pathlib.Path) -> None:
    outcome = Suite(tmp_path)("-n0")

    assert outcome.code == 0, outcome.output
    broken = [c["id"] for c in outcome.report["clauses"] for case in c["cases"] if case["verdict"] in BROKEN]
    assert all(registry()[id].level is Level.MAY for id in broken)
    assert outcome.report["profiles"]["tape"]["core"] is True


@pytest.mark.parametrize("control", CONTROLS)
def test_no_control_keeps_the_core_profile(on_the_tape: Outcome, control: str) -> None:
    core = {c.id for c in registry().values() if c.profile is Profile.CORE and c.level is Level.MUST}
    broken = {name.partition("[")[0] for name in failing(on_the_tape, control)}

    assert on_the_tape.code == 1
    assert broken & core
    assert not any(on_the_tape.report["profiles"][control].values())


@pytest.mark.parametrize("control", ["plain-call", "replay-in-forward", "always-raises"])
def test_who_never_replays_passes_nothing(outcome: Outcome, control: str) -> None:
    assert passing(outcome, control) == []


def test_a_plain_call_fails_because_nothing_is_replayed(on_the_tape: Outcome) -> None:
    reasons = set(failing(on_the_tape, "plain-call").values())

    assert "no replay was seen in backward" in reasons
    assert "WRONG" not in [v for case, v in on_the_tape.verdicts.items() if "[plain-call" in case]


def test_two_replays_are_one_too_many(outcome: Outcome) -> None:
    assert failing(outcome, "two-replays")["GRAD-13[two-replays]"] == "backward ran the region more than once"
    assert "GRAD-01" in passing(outcome, "two-replays")


def test_keeping_everything_breaks_memory_and_nothing_else(outcome: Outcome) -> None:
    broken = failing(outcome, "keeps-everything")

    assert broken["MEM-01[keeps-everything]"] == "intermediates are held after forward"
    for name, label in broken.items():
        if registry()[name.partition("[")[0]].level is Level.MUST:
            assert re.search(r"\b(held|alive|pile up)\b", label), name


@pytest.mark.parametrize(("control", "label"), [("zero-values", "value"), ("zero-gradients", "gradient")])
def test_zeros_are_wrong(outcome: Outcome, control: str, label: str) -> None:
    broken = failing(outcome, control)

    for case in ("GRAD-01[{}-float64]", "GRAD-02[{}]", "GRAD-03[{}]"):
        assert outcome.verdicts[case.format(control)] == "WRONG"
        assert broken[case.format(control)] == label


def test_always_raising_is_a_failure_in_forward(outcome: Outcome) -> None:
    case = outcome.cases["GRAD-01[always-raises-float64]"]

    assert (case["verdict"], case["exception"], case["phase"]) == ("FAIL", "NotImplementedError", "forward")
    assert outcome.verdicts["DECO-01[always-raises]"] in ("FAIL", "REFUSED")
