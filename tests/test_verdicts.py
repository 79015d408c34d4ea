"""Every row of the verdict table, reached by a case that runs; and what counts as evidence."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from controls import TOOLS, plain_call, replay_in_forward, zero_values
from tape import TapeHost, tape_checkpointer

from ckptspec.conformance.backend import Capability, Checkpointer, Fact, Region
from ckptspec.conformance.case import Record, execute, of_node
from ckptspec.conformance.clause import MUST, Clause, registry
from ckptspec.conformance.under_test import UnderTest
from ckptspec.conformance.verdict import TABLE, Observed, Verdict, conclude

HOST = TapeHost()
RIGHT = tape_checkpointer(HOST)


def outcome(
    function: Callable[[UnderTest], None],
    checkpointer: Checkpointer = RIGHT,
    *,
    is_declared: bool = True,
    needs: frozenset[Fact] = frozenset(),
) -> Record:
    """The record of a clause that tests a capability which is declared or not."""
    clause = Clause("X-01", MUST, function, (Capability.EARLY_STOP,), needs, None, 1, {}, "It holds.", "", "here")
    capabilities = frozenset({Capability.EARLY_STOP} if is_declared else ())
    checkpointer = dataclasses.replace(checkpointer, capabilities=capabilities)
    record, _ = execute(clause, "tape", "", function, HOST, checkpointer)
    return record


def calling(call: Callable[..., Any]) -> Checkpointer:
    return dataclasses.replace(RIGHT, checkpoint=call)


def holds(under_test: UnderTest) -> None:
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint: Any, x: Any) -> Any:
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())


def breaks_a_bound(under_test: UnderTest) -> None:
    holds(under_test)
    raise AssertionError("a bound that is named\nand numbers")


def uses_what_is_absent(under_test: UnderTest) -> None:
    holds(under_test)
    under_test.ops.fast_fourier_transform(under_test.array())


def is_our_own_fault(under_test: UnderTest) -> None:
    holds(under_test)
    raise LookupError("a mistake in the clause")


def raising(region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
    raise NotImplementedError("not here")


ROWS: dict[Observed, tuple[Callable[[UnderTest], None], Checkpointer]] = {
    Observed.HOLDS: (holds, RIGHT),
    Observed.WRONG: (holds, calling(zero_values(RIGHT.checkpoint, HOST, TOOLS))),
    Observed.BOUND: (breaks_a_bound, RIGHT),
    Observed.RAISED: (holds, calling(raising)),
    Observed.OTHER: (is_our_own_fault, RIGHT),
    Observed.PLAIN: (uses_what_is_absent, RIGHT),
}


@pytest.mark.parametrize("is_declared", [True, False], ids=["declared", "not declared"])
@pytest.mark.parametrize("observed", ROWS, ids=lambda observed: observed.name)
def test_each_row_of_the_table_is_reached(observed: Observed, is_declared: bool) -> None:
    record = outcome(*ROWS[observed], is_declared=is_declared)

    assert record.verdict is TABLE[observed][0 if is_declared else 1]


def test_the_two_rows_that_no_case_survives_are_reached_in_isolation() -> None:
    assert set(TABLE) == set(Observed) == set(ROWS) | {Observed.DIED, Observed.HUNG}
    assert conclude(Observed.DIED, is_declared=False) is Verdict.CRASH
    assert conclude(Observed.HUNG, is_declared=False) is Verdict.TIMEOUT


def test_a_missing_capability_never_excuses_a_wrong_answer() -> None:
    wrong = outcome(*ROWS[Observed.WRONG], is_declared=False)

    assert (wrong.verdict, wrong.label) == (Verdict.WRONG, "value")


@pytest.mark.parametrize("control", [plain_call, replay_in_forward])
def test_a_pass_needs_a_replay_in_backward(control: Any) -> None:
    record = outcome(holds, calling(control(RIGHT.checkpoint, HOST, TOOLS)))

    assert (record.verdict, record.label) == (Verdict.FAIL, "no replay was seen in backward")


def test_a_case_that_never_runs_anything_is_no_pass() -> None:
    record = outcome(lambda under_test: None)

    assert (record.verdict, record.label) == (Verdict.FAIL, "no replay was seen in backward")


def test_a_run_may_go_without_replay_only_beside_one_that_replays() -> None:
    def linear(under_test: UnderTest) -> None:
        probe = under_test.probe()
        under_test.run(
            lambda checkpoint, x: checkpoint(lambda x: under_test.ops.add(probe(x), 1.0), x),
            under_test.array(),
            replays=0,
        )

    def both(under_test: UnderTest) -> None:
        linear(under_test)
        holds(under_test)

    assert outcome(linear).verdict is Verdict.FAIL
    assert outcome(both).verdict is Verdict.PASS


def test_a_bound_keeps_its_first_line_as_its_label() -> None:
    assert outcome(*ROWS[Observed.BOUND]).label == "a bound that is named"


def test_an_exception_is_noted_with_the_phase_in_which_it_left() -> None:
    def late(region: Region, args: tuple[Any, ...], kwargs: Any, options: Any) -> Any:
        executions = 0

        def once(*args: Any) -> Any:
            nonlocal executions
            executions += 1
            if executions > 1:
                raise OSError("only once")
            return region(*args)

        return RIGHT.checkpoint(once, args, kwargs, options)

    early, later = outcome(*ROWS[Observed.RAISED]), outcome(holds, calling(late))

    assert (early.verdict, early.phase, early.exception) == (Verdict.FAIL, "forward", "NotImplementedError")
    assert (later.verdict, later.phase, later.exception) == (Verdict.FAIL, "backward", "OSError")


def test_an_exception_that_leaves_again_is_noted_with_the_phase_in_which_it_ended_the_run() -> None:
    error = KeyboardInterrupt("the function fails")

    def failing(*args: Any) -> Any:
        raise error

    def clause(under_test: UnderTest) -> None:
        def program(checkpoint: Any, x: Any) -> Any:
            with contextlib.suppress(KeyboardInterrupt):
                checkpoint(failing, x)
            return checkpoint(under_test.ops.sin, x)

        under_test.run(program, under_test.array())

    def unforgiving(region: Region, *call: Any) -> Any:
        """Raises in the replay what a region has raised in forward."""
        executions = iter([region, failing])
        return RIGHT.checkpoint(lambda *args: next(executions)(*args), *call)

    record = outcome(clause, calling(unforgiving))

    assert (record.verdict, record.phase, record.exception) == (Verdict.FAIL, "backward", "KeyboardInterrupt")


def test_an_assertion_inside_the_implementation_is_its_exception_and_no_bound() -> None:
    def asserting(*call: Any) -> Any:
        raise AssertionError("internal")

    record = outcome(holds, calling(asserting))

    assert (record.verdict, record.exception, record.label) == (Verdict.FAIL, "AssertionError", "")


def test_an_exception_that_leaves_a_decorated_function_is_the_implementations() -> None:
    def program(checkpoint: Any, x: Any) -> Any:
        return checkpoint.decorator()(lambda x: x)(x)

    def decorated(under_test: UnderTest) -> None:
        under_test.run(program, under_test.array())

    def decorator(options: Any) -> Callable[[Region], Region]:
        return lambda region: lambda *args: raising(region, args, {}, options)

    record = outcome(decorated, dataclasses.replace(RIGHT, decorator=decorator))

    assert (record.verdict, record.exception) == (Verdict.FAIL, "NotImplementedError")


@pytest.mark.parametrize("ending", [KeyboardInterrupt(), SystemExit(0), pytest.exit.Exception("enough")], ids=repr)
def test_a_case_ends_only_itself(ending: BaseException) -> None:
    def ends(*call: Any) -> Any:
        raise ending

    def is_over(under_test: UnderTest) -> None:
        raise ending

    assert outcome(holds, calling(ends)).verdict is Verdict.FAIL
    assert outcome(is_over).verdict is Verdict.ERROR


def test_a_plain_run_that_raises_is_not_applicable_and_says_why() -> None:
    def raises_plainly(under_test: UnderTest) -> None:
        def program(checkpoint: Any, x: Any) -> Any:
            raise ZeroDivisionError("in the program")

        under_test.run(program, under_test.array())

    record = outcome(raises_plainly)

    assert record.verdict is Verdict.NOT_APPLICABLE
    assert "the plain run raises in forward: ZeroDivisionError: in the program" in record.message


def test_a_plain_run_that_does_not_repeat_is_not_applicable() -> None:
    def differs(under_test: UnderTest) -> None:
        runs = iter([1.0, 2.0, 2.0])
        under_test.run(lambda checkpoint, x: under_test.ops.multiply(x, next(runs)), under_test.array())

    record = outcome(differs)

    assert record.verdict is Verdict.NOT_APPLICABLE
    assert "two plain runs differ" in record.message


def test_a_missing_host_fact_is_not_applicable_and_named() -> None:
    record = outcome(holds, needs=frozenset({Fact.IN_PLACE}))

    assert record.verdict is Verdict.NOT_APPLICABLE
    assert record.message == f"tape does not have {Fact.IN_PLACE.value}"


def test_evidence_counts_executions_by_phase() -> None:
    (run,) = outcome(holds).evidence

    assert run["replays"] == 1
    assert run["plain"] == {"forward": {"probe0": 1}, "backward": {"probe0": 0}}
    assert run["checkpointed"] == {"forward": {"probe0": 1}, "backward": {"probe0": 1}}


def test_a_message_is_the_same_on_every_run() -> None:
    def says_where_it_is(under_test: UnderTest) -> None:
        raise AssertionError(f"it is\n{object()!r}")

    record = outcome(says_where_it_is)

    assert record.message == "it is\n<object object at 0x…>"


def test_a_node_id_is_read_back_into_clause_variant_and_parameters() -> None:
    registry()
    name = "conformance/test_grad.py::test_values_and_gradients_equal_the_plain_run"

    found = of_node(f"{name}[non-reentrant-float64]", ["reentrant", "non-reentrant", "non"])

    assert found is not None
    assert (found[0].id, *found[1:]) == ("GRAD-01", "non-reentrant", "float64")
    assert of_node(f"{name}[other]", ["reentrant"]) is None
    assert of_node("tests/test_x.py::test_y", ["reentrant"]) is None
