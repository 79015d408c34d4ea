"""Programs nobody wrote by hand: small differentiable computations with regions anywhere in them.

A program is plain data, so that hypothesis can shrink it and a person can read it: a block of steps over numbered
values. `programs` draws one, `Block.call` executes it through any host's operations, `Block.text` writes it down.

Values are matrices of one size, vectors of their elements, or numbers; every operation says in `SIGNATURES` what it
takes and gives. A body refers to values outside it by their numbers: these are its captures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

SIDE = 3
"""Matrices are SIDE × SIDE, vectors have SIDE² elements."""

MATRIX, VECTOR, NUMBER = "matrix", "vector", "number"

#: Operation -> the kinds it takes and the kind it gives. None: any kind, the same for input and result.
SIGNATURES: dict[str, tuple[tuple[str | None, ...], str | None]] = {
    "sin": ((None,), None),  # saves its input
    "cos": ((None,), None),
    "square": ((None,), None),
    "exp": ((None,), None),  # saves its result
    "tanh": ((None,), None),
    "sigmoid": ((None,), None),
    "negative": ((None,), None),  # saves nothing
    "add": ((None, None), None),
    "multiply": ((None, None), None),  # saves both inputs
    "matmul": ((MATRIX, MATRIX), MATRIX),
    "sum": ((MATRIX,), NUMBER),
    "scale": ((MATRIX, NUMBER), MATRIX),
    "flatten": ((MATRIX,), VECTOR),  # views, where the host has them
    "unflatten": ((VECTOR,), MATRIX),
    "transpose": ((MATRIX,), MATRIX),
    "dropout": ((None,), None),
    "uniform": ((None,), None),
    "add_": ((None, None), None),
    "multiply_": ((None, None), None),
}
#: The host's operations behind those that have another name here.
OPERATIONS_OF: dict[str, tuple[str, ...]] = {
    "scale": ("multiply",),
    "flatten": ("reshape",),
    "unflatten": ("reshape",),
    "transpose": ("permute_dims",),
    "uniform": ("multiply", "uniform_like"),
}
PURE = tuple(name for name in SIGNATURES if name not in ("dropout", "uniform", "add_", "multiply_"))
RANDOM = ("dropout", "uniform")
IN_PLACE = ("add_", "multiply_")


@dataclass(frozen=True)
class Step:
    """One operation on values by their numbers; its result is the next value."""

    operation: str
    inputs: tuple[int, ...]

    def call(self, ops: Any, values: list[Any]) -> Any:
        x, *others = (values[i] for i in self.inputs)
        match self.operation:
            case "flatten":
                return ops.reshape(x, (SIDE * SIDE,))
            case "unflatten":
                return ops.reshape(x, (SIDE, SIDE))
            case "transpose":
                return ops.permute_dims(x, (1, 0))
            case "scale":
                return ops.multiply(x, others[0])
            case "dropout":
                return ops.dropout(x, 0.5)
            case "uniform":
                return ops.multiply(x, ops.uniform_like(x))
        return getattr(ops, self.operation)(x, *others)

    def text(self, number: int, indent: str) -> Iterator[str]:
        yield f"{indent}v{number} = {self.operation}({', '.join(f'v{i}' for i in self.inputs)})"


@dataclass(frozen=True)
class Region:
    """A checkpointed body. Its inputs are arguments, by position or by keyword; its results are the next values."""

    inputs: tuple[int, ...]
    body: Block
    options: tuple[tuple[str, Any], ...] = ()
    by_keyword: bool = False

    def call(self, ops: Any, values: list[Any], checkpoint: Any, probe: Callable[[Any], Any]) -> tuple[Any, ...]:
        outside = list(values)

        def region(*given: Any, **named: Any) -> tuple[Any, ...]:
            inside = [*outside, *(probe(x) for x in (*given, *named.values()))]
            return self.body.call(ops, inside, checkpoint, probe)

        configured = checkpoint.using(**dict(self.options)) if self.options else checkpoint
        given = [values[i] for i in self.inputs]
        if self.by_keyword:
            return tuple(configured(region, given[0], **{f"k{i}": x for i, x in enumerate(given[1:])}))
        return tuple(configured(region, *given))

    def text(self, number: int, indent: str) -> Iterator[str]:
        arguments = [f"v{number + i}" for i in range(len(self.inputs))]
        yield f"{indent}def region({', '.join(arguments)}):"
        yield from self.body.text(number + len(self.inputs), indent + "    ")
        given = [f"v{i}" for i in self.inputs]
        if self.by_keyword:
            given = [given[0], *(f"k{i}={v}" for i, v in enumerate(given[1:]))]
        options = [f"{name}={value!r}" for name, value in self.options]
        results = "".join(f"v{number + i}, " for i in range(len(self.body.results)))
        yield f"{indent}{results.strip()} = checkpoint(region, {', '.join(given + options)})"


@dataclass(frozen=True)
class Block:
    """Steps one after the other, and which values come out."""

    steps: tuple[Step | Region, ...]
    results: tuple[int, ...]

    def call(self, ops: Any, values: list[Any], checkpoint: Any, probe: Callable[[Any], Any]) -> tuple[Any, ...]:
        """The results, for the values known so far."""
        for step in self.steps:
            if isinstance(step, Step):
                values.append(step.call(ops, values))
            else:
                values.extend(step.call(ops, values, checkpoint, probe))
        return tuple(values[i] for i in self.results)

    def text(self, number: int, indent: str = "") -> Iterator[str]:
        """The block as lines of Python; `number` values are known so far."""
        for step in self.steps:
            yield from step.text(number, indent)
            number += 1 if isinstance(step, Step) else len(step.body.results)
        yield f"{indent}return {', '.join(f'v{i}' for i in self.results)}"

    def executions(self, depth: int = 1) -> int:
        """How often one backward may execute a probe on each region's inputs: a region at depth d, d times."""
        return sum(len(s.inputs) * depth + s.body.executions(depth + 1) for s in self.steps if isinstance(s, Region))


ABSENT = object()
"""Drawn for an option that a region is not given."""


@dataclass(frozen=True)
class Grammar:
    """What programs are drawn from.

    operations: names of SIGNATURES. options: for each option, the values that a region may have (never mixed with the
    default: absent). keywords: whether regions may be given keywords. depth: of nested regions, at most.
    """

    operations: tuple[str, ...]
    options: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    keywords: bool = False
    depth: int = 3
    steps: int = 5


PRIMALS = (MATRIX, MATRIX, NUMBER)
"""The kinds of a program's primals."""


@st.composite
def programs(draw: st.DrawFn, grammar: Grammar) -> Block:
    """A program over PRIMALS that contains a region, at the end of which something is saved."""
    return draw(_blocks(grammar, PRIMALS, grammar.depth, outermost=True))


@st.composite
def _blocks(
    draw: st.DrawFn, grammar: Grammar, kinds: tuple[str, ...], depth: int, *, inputs: int = 0, outermost: bool = False
) -> Block:
    known, steps = list(kinds), list[Step | Region]()
    count = draw(st.integers(1, grammar.steps))
    # An outermost block has a region at a drawn place; inside, one is as likely as any operation.
    place = draw(st.integers(0, count - 1)) if outermost else -1
    for i in range(count):
        if i == place or (depth > 0 and not outermost and draw(st.integers(0, 4)) == 4):
            region, given = draw(_regions(grammar, tuple(known), depth - 1))
            steps.append(region)
            known.extend(given)
        else:
            step, kind = draw(_steps(grammar, tuple(known), len(kinds) - inputs))
            steps.append(step)
            known.append(kind)
    # The last value comes out, so that what was drawn has an influence; another one may.
    last = len(known) - 1
    others = [draw(st.integers(len(kinds), last - 1))] if last > len(kinds) and draw(st.booleans()) else []
    return Block(tuple(steps), (last, *others))


@st.composite
def _regions(draw: st.DrawFn, grammar: Grammar, kinds: tuple[str, ...], depth: int) -> tuple[Region, list[str]]:
    inputs = tuple(draw(st.lists(st.integers(0, len(kinds) - 1), min_size=1, max_size=3)))
    inside = (*kinds, *(kinds[i] for i in inputs))
    body = draw(_blocks(grammar, inside, depth, inputs=len(inputs)))
    drawn = [(name, draw(st.sampled_from((ABSENT, *values)))) for name, values in grammar.options]
    options = tuple((name, value) for name, value in drawn if value is not ABSENT)
    by_keyword = grammar.keywords and len(inputs) > 1 and draw(st.booleans())
    return Region(inputs, body, options, by_keyword), [_kinds(body, inside)[i] for i in body.results]


def _kinds(block: Block, kinds: tuple[str, ...]) -> list[str]:
    """The kinds of all values that a block knows at its end."""
    known = list(kinds)
    for step in block.steps:
        if isinstance(step, Step):
            gives = SIGNATURES[step.operation][1]
            known.append(known[step.inputs[0]] if gives is None else gives)
        else:
            inside = _kinds(step.body, (*known, *(known[i] for i in step.inputs)))
            known.extend(inside[i] for i in step.body.results)
    return known


@st.composite
def _steps(draw: st.DrawFn, grammar: Grammar, kinds: tuple[str, ...], own: int) -> tuple[Step, str]:
    """One operation. From `own` on, values are the block's own: only these are changed in place."""
    fitting = [name for name in grammar.operations if _fits(name, kinds, own)]
    operation = draw(st.sampled_from(fitting))
    takes, gives = SIGNATURES[operation]
    start = own if operation in IN_PLACE else 0
    first = draw(st.sampled_from([i for i, kind in enumerate(kinds) if i >= start and takes[0] in (None, kind)]))
    inputs = [first]
    for wanted in takes[1:]:
        kind = wanted or kinds[first]
        inputs.append(draw(st.sampled_from([i for i, k in enumerate(kinds) if k == kind])))
    return Step(operation, tuple(inputs)), gives or kinds[first]


def _fits(operation: str, kinds: tuple[str, ...], own: int) -> bool:
    if operation in IN_PLACE and own == len(kinds):
        return False
    return all(kind is None or kind in kinds for kind in SIGNATURES[operation][0])
