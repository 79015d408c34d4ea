"""Drawn programs: their text is all there is, it says only what is offered, and it goes with what is said of it."""

from __future__ import annotations

import ast
import dataclasses
import random
from typing import Any

import pytest
from tape import TapeHost, tape_checkpointer

from ckptspec.conformance.backend import Capability, Checkpointer, Fact, Host, MissingFact, Ops
from ckptspec.conformance.explore import values
from ckptspec.conformance.grammar import WAYS, grammar
from ckptspec.conformance.programs import ROWS, WIDTH, Program, Writer
from ckptspec.conformance.under_test import UnderTest

HOST = TapeHost()
TAPE = tape_checkpointer(HOST)
BARE = dataclasses.replace(TAPE, capabilities=frozenset())
EVERYTHING = dataclasses.replace(TAPE, capabilities=frozenset(Capability))


class Everything(TapeHost):
    """A host that says it has whatever programs can use."""

    facts = frozenset(Fact)
    ops = Ops("everything", dict.fromkeys([*HOST.ops._table, "add_", "multiply_", "autocast"], lambda *_: None))


def drawn(count: int, host: Host = HOST, checkpointer: Checkpointer = TAPE, **asked: Any) -> list[Program]:
    words, draw = grammar(host, checkpointer, **asked), random.Random(1)
    return [Writer(words, draw.randbytes(ROWS * WIDTH)).write() for _ in range(count)]


RICH = drawn(
    400,
    Everything(),
    EVERYTHING,
    random=True,
    in_place=True,
    autocast=True,
    options=("early_stop", "preserve_rng_state", "determinism_check"),
    policies="functions",
    ways=tuple(WAYS),
)


def names(nodes: list[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def bound(nodes: list[ast.AST]) -> set[str]:
    """What is given a value: by an assignment, as a parameter, by `def`."""
    parameters = {n.arg for n in nodes if isinstance(n, ast.arg)}
    return names(nodes, ast.Store) | parameters | {n.name for n in nodes if isinstance(n, ast.FunctionDef)}


def functions(program: Program) -> list[ast.FunctionDef]:
    return [n for n in ast.walk(ast.parse(program.text)) if isinstance(n, ast.FunctionDef)]


def scope(node: ast.AST) -> list[ast.AST]:
    """The nodes of a function or a loop: the functions in it, but not what is in these."""
    found, waiting = list[ast.AST](), list(ast.iter_child_nodes(node))
    while waiting:
        found.append(waiting.pop())
        waiting += [] if isinstance(found[-1], ast.FunctionDef) else ast.iter_child_nodes(found[-1])
    return found


def test_a_table_of_zeros_is_the_smallest_program() -> None:
    program = Writer(grammar(HOST, TAPE), bytes(ROWS * WIDTH)).write()

    assert program.text == (
        "def program(checkpoint, a, b, c):\n"
        "    def region1(v2):\n"
        "        v3 = probe(v2)\n"
        "        v4 = ops.sin(v3)\n"
        "        return v4\n"
        "    v5 = checkpoint(region1, c)\n"
        "    return a, v5,\n"
        "def backward(checkpoint, pull, a, b, c):\n"
        "    return pull()"
    )
    assert program.executions == 1


def test_a_program_uses_nothing_but_its_words() -> None:
    for program in RICH:
        nodes = [*ast.walk(ast.parse(program.text))]
        used = names(nodes, ast.Load) - bound(nodes)
        assert used <= {"ops", "probe", "iter", "range", "next", "KeyError"}, program.text


@pytest.mark.parametrize(
    "text",
    [
        "checkpoint.using(", "@checkpoint.decorator(", "checkpoint.early_stop(False)", "preserve_rng_state=False",
        'determinism_check="none"', "policy=lambda name: name in", "policy=lambda name: next(", ', {"key": ', ", [v",
        "for i", "if n", "if i", "with ops.no_grad()", "with ops.autocast(a)", "ops.dropout(", "ops.add_(",
        "ops.custom(", "ops.stop_gradient(", '"float32"', '"int64"', "ops.less(", "[1:]", ".values()", "inputs=[0]",
        "pull(retain=True), pull()", "pull(outputs=[0]", "checkpoint.group()", "broken.append", "(a), pull(), ops",
    ],
)  # fmt: skip
def test_everything_that_is_offered_is_drawn(text: str) -> None:
    assert any(text in program.text for program in RICH)


def test_regions_are_nested_four_deep() -> None:
    def depth(tree: ast.AST) -> int:
        return max(map(depth, ast.iter_child_nodes(tree)), default=0) + isinstance(tree, ast.FunctionDef)

    assert {depth(ast.parse(program.text)) - 1 for program in RICH} == {1, 2, 3, 4}


@pytest.mark.parametrize("text", ["using(", "decorator", ".values()", "checkpoint.early_stop", "inputs=", "group"])
def test_nothing_is_drawn_that_is_not_offered(text: str) -> None:
    programs = drawn(300, HOST, BARE, also=("early_stop", "determinism_check"), ways=tuple(WAYS))

    assert not any(text in program.text for program in programs)


def test_a_bare_checkpointer_is_given_arrays_by_position() -> None:
    for program in drawn(300, HOST, BARE):
        for node in ast.walk(ast.parse(program.text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "checkpoint":
                assert not node.keywords
                assert all(isinstance(x, ast.Name | ast.Constant) for x in node.args)
                assert len(node.args) > 1, "a region without an argument"


def test_only_primals_are_captured_where_captures_are_not_free() -> None:
    for program in drawn(300, HOST, BARE):
        for region in (f for f in functions(program) if f.name.startswith("region")):
            nodes = [*ast.walk(region)]
            used = names(nodes, ast.Load) - bound(nodes)
            assert used <= {"ops", "probe", "checkpoint", "range", "a", "b", "c"}, program.text


def test_what_is_asked_for_and_not_offered_is_drawn_to_be_refused() -> None:
    assert all("checkpoint.group()" in p.text for p in drawn(10, HOST, BARE, ways=("in a group",)))
    assert any("early_stop=" in p.text for p in drawn(50, HOST, BARE, options=("early_stop",)))


def test_autocast_is_a_fact_of_the_host() -> None:
    with pytest.raises(MissingFact, match="autocast"):
        grammar(HOST, TAPE, autocast=True)


def test_random_operations_need_a_global_generator() -> None:
    class Keyed(TapeHost):
        facts = TapeHost.facts - {Fact.GLOBAL_RANDOM}

    assert not any("uniform" in p.text or "dropout" in p.text for p in drawn(100, Keyed(), TAPE, random=True))


def test_what_a_region_captured_keeps_its_name() -> None:
    """A replay finds the value that a name has in the end, not the one that forward found."""
    captured = 0
    for program in RICH:
        for function in functions(program):
            stores = [n for n in scope(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
            loops = [n for n in scope(function) if isinstance(n, ast.For)]
            for region in (n for n in scope(function) if isinstance(n, ast.FunctionDef)):
                around = [store for loop in loops if region in scope(loop) for store in scope(loop) if store in stores]
                later = {n.id for n in stores if n.lineno > region.lineno or n in around}
                inside = [n for part in (*region.body, region.args) for n in ast.walk(part)]
                read = names(inside, ast.Load) - bound(inside)
                captured += bool(read & {n.id for n in stores})
                assert not read & later, program.text
    assert captured > 50


@pytest.mark.filterwarnings("ignore")
def test_executions_are_a_bound_that_is_reached() -> None:
    under_test = UnderTest(HOST, TAPE)
    probe, reached = under_test.probe(), 0
    for program in drawn(150):
        words: dict[str, Any] = {"ops": HOST.ops, "probe": probe}
        exec(program.text, words)
        given = [values(i, kind) for i, kind in enumerate(program.primals)]
        primals = [under_test.array(*g["values"], dtype=g["dtype"], shape=g["shape"]) for g in given]
        seen = under_test.run(words["program"], *primals, replays=0)
        assert seen.backward[probe] <= program.executions
        reached += seen.backward[probe] == program.executions > 1
    assert reached > 5
