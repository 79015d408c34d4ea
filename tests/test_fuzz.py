"""Exploring: what is tried, counted, discarded and handed over; and that it finds what is known to be there."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from running import Suite
from tape import Options, TapeHost, checkpoint, tape_checkpointer

from ckptspec.conformance.backend import Checkpointer, NotWritten, Ops
from ckptspec.conformance.case import Record, execute
from ckptspec.conformance.clause import registry
from ckptspec.conformance.explore import Exploration
from ckptspec.conformance.handles import Checkpoint, Plain, Pull
from ckptspec.conformance.under_test import PlainDiffers, UnderTest
from ckptspec.conformance.verdict import Verdict

HOST = TapeHost()
TAPE = tape_checkpointer(HOST)
Check = Callable[[Any, tuple[Any, ...], Any], None]


def _cut(region: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
    result = checkpoint(region, args, kwargs, Options(**options))
    return HOST.stop_gradient(result) if HOST.is_array(result) else result


#: A region's only result has no gradient.
CUT = dataclasses.replace(TAPE, checkpoint=_cut, decorator=lambda options: lambda region: region)


def explored(check: Check, how: Exploration, checkpointer: Checkpointer = TAPE, **asked: Any) -> dict[str, Any]:
    """What came of exploring, whether the check held or not."""
    under_test = UnderTest(HOST, checkpointer, how)
    with contextlib.suppress(AssertionError):
        under_test.explore(check, **asked)
    (evidence,) = under_test.evidence
    return evidence


def texts(how: Exploration, name: str = "check") -> list[str]:
    found: list[str] = []

    def check(program: Any, primals: Any, drawn: Any) -> None:
        found.append(drawn.text)

    check.__qualname__ = name
    explored(check, how)
    return found


def without_concat(program: Any, primals: Any, drawn: Any) -> None:
    assert "ops.concat" not in drawn.text


def run(checkpointer: Checkpointer, how: Exploration, clause: str = "FUZZ-01") -> Record:
    """The record of a clause."""
    stated = registry()[clause]
    record, _ = execute(stated, "tape", "", lambda u: stated.function(u), HOST, checkpointer, how)
    return record


def test_the_same_programs_are_drawn_each_time_and_others_with_a_seed() -> None:
    usual = texts(Exploration(20))

    assert usual == texts(Exploration(20))
    assert usual != texts(Exploration(20, seed=1))
    assert texts(Exploration(20, seed=1)) == texts(Exploration(20, seed=1))
    assert len(set(usual)) > 15


def test_each_property_is_tried_on_programs_of_its_own() -> None:
    assert texts(Exploration(20)) != texts(Exploration(20), "another")


@pytest.mark.filterwarnings("ignore")
def test_what_is_executed_is_the_text() -> None:
    def check(program: Any, primals: Any, drawn: Any) -> None:
        words: dict[str, Any] = {"ops": HOST.ops, "probe": lambda x: x}
        exec(drawn.text, words)
        for expected, found in zip(words["program"](Plain(), *primals), program(Plain(), *primals), strict=True):
            np.testing.assert_array_equal(HOST.numpy(expected), HOST.numpy(found))

    assert explored(check, Exploration(50))["program"] == ""


def test_a_failure_is_handed_over_small_and_whole() -> None:
    record = run(CUT, Exploration(200))
    (evidence,) = record.evidence

    assert record.verdict is Verdict.WRONG
    assert evidence["program"].splitlines() == [
        "def program(checkpoint, a, b, c):",
        "    def region1(v2):",
        "        v3 = probe(v2)",
        "        v4 = ops.sin(v3)",
        "        return v4",
        "    v5 = checkpoint(region1, c)",
        "    return a, v5,",
        "def backward(checkpoint, pull, a, b, c):",
        "    return pull()",
    ]
    assert [(p["shape"], p["dtype"]) for p in evidence["primals"]] == [([3], "float64")] * 2 + [([], "float64")]


def test_a_failure_can_be_made_again_from_its_evidence() -> None:
    """With nothing but the text, the words and the primals."""
    (evidence,) = run(CUT, Exploration(200, is_shrinking=False), "FUZZ-05").evidence
    words: dict[str, Any] = {"ops": HOST.ops, "probe": lambda x: x}
    exec(evidence["program"], words)
    primals = [HOST.array(np.array(p["values"], p["dtype"]).reshape(p["shape"])) for p in evidence["primals"]]
    found = []
    for handle in (Plain(), Checkpoint(CUT, lambda call, *args: call(*args), {})):
        outputs, pullback = HOST.vjp(lambda *xs, handle=handle: words["program"](handle, *xs), *primals)
        pull = Pull(HOST, outputs, pullback, lambda call, *args: call(*args))
        found.append([[HOST.numpy(g) for g in each] for each in words["backward"](handle, pull, *primals)])

    assert any(not np.array_equal(x, y) for p, q in zip(*found, strict=True) for x, y in zip(p, q, strict=True))


def test_examples_are_counted_up_to_the_first_failure() -> None:
    tried = 0

    def check(program: Any, primals: Any, drawn: Any) -> None:
        nonlocal tried
        tried += 1
        without_concat(program, primals, drawn)

    evidence = explored(check, Exploration(500))

    assert 1 < evidence["examples"] < tried, "those that shrinking tried count too"
    assert "ops.concat" in evidence["program"]


def test_programs_whose_plain_run_says_nothing_are_discarded_and_counted() -> None:
    def check(program: Any, primals: Any, drawn: Any) -> None:
        if "ops.tanh" in drawn.text:
            raise PlainDiffers("not today")

    evidence = explored(check, Exploration(40))

    assert evidence["discarded"] > 3
    assert evidence["examples"] - evidence["discarded"] == 40
    assert evidence["program"] == ""


def test_what_is_still_to_be_written_is_not_discarded() -> None:
    def sin(x: Any) -> Any:
        raise NotWritten("ops")

    class Unwritten(TapeHost):
        ops = Ops("unwritten", TapeHost.ops._table | {"sin": sin})

    def check(program: Any, primals: Any, drawn: Any) -> None:
        program(Plain(), *primals)

    with pytest.raises(NotWritten):
        UnderTest(Unwritten(), TAPE, Exploration(50)).explore(check)


def test_an_endless_replay_ends() -> None:
    def endless(region: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        while True:
            region(*args, **kwargs)

    record = run(dataclasses.replace(TAPE, checkpoint=endless, decorator=None), Exploration(5, is_shrinking=False))

    assert record.verdict is Verdict.FAIL
    assert "regions are executed without end" in record.message


def test_what_was_found_is_tried_first_the_next_time(tmp_path: pathlib.Path) -> None:
    how = Exploration(500, database=str(tmp_path), is_shrinking=False)

    assert explored(without_concat, how)["examples"] > 1
    assert explored(without_concat, dataclasses.replace(how, seed=7))["examples"] == 1


def test_properties_do_not_share_what_was_found(tmp_path: pathlib.Path) -> None:
    def another(program: Any, primals: Any, drawn: Any) -> None:
        without_concat(program, primals, drawn)

    how = Exploration(500, database=str(tmp_path), is_shrinking=False)
    explored(without_concat, how)

    assert explored(another, how)["examples"] > 1


@pytest.mark.parametrize("clause", [id for id in registry() if id.startswith("FUZZ-")])
def test_the_tape_is_right_or_says_what_it_does_not_offer(clause: str) -> None:
    record = run(TAPE, Exploration(60), clause)
    good = {Verdict.PASS, Verdict.NOT_APPLICABLE, Verdict.NOT_OFFERED, Verdict.REFUSED}

    assert record.verdict in good, record.message


def test_a_long_run_shows_its_progress(tmp_path: pathlib.Path, suite: Suite) -> None:
    outcome = suite("-n0", "-s", "--clause=FUZZ-05", "--max-examples=1500", f"--fuzz-database={tmp_path}/found")

    assert outcome.code == 0, outcome.output
    assert " of 1500 programs, " in outcome.output


def test_a_known_silent_fault_of_torch_is_found_again(suite: Suite) -> None:
    """A saved draw shifts the later ones (RNG-14): wrong gradients, and no word of it."""
    pytest.importorskip("torch")
    outcome = suite("-n2", "--clause=FUZZ-06", "--seed=1", "--max-examples=300", adapter="torch")

    assert outcome.code == 1
    case = outcome.cases["FUZZ-06[non-reentrant]"]
    assert (case["verdict"], case["label"]) == ("WRONG", "gradient")
    program = case["evidence"][0]["program"]
    assert "uniform_like" in program
    assert "save=" in program
    assert len(program.splitlines()) <= 12
    assert program.splitlines()[0] in outcome.output, "it is printed"
