"""Programs nobody wrote by hand: small differentiable computations with regions anywhere in them.

A program is Python text, and this very text is executed. It is written from a table of bytes, a row a statement: what
the statement is, and what it takes. A row of zeros is no statement, and a smaller number is a simpler choice: so that
hypothesis, which makes numbers smaller, makes programs smaller.

Read `Writer.write` first: it goes through the rows. `operations` are what they call, `grammar` is what else there is.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from hypothesis import strategies as st

from ckptspec.conformance.backend import Capability
from ckptspec.conformance.grammar import FORMS, WAYS, Grammar
from ckptspec.conformance.operations import Kind, Operation


class Row(NamedTuple):
    """A row of the table: what the statement is, and the choices that it may need, each a byte."""

    what: int
    x: int
    y: int
    z: int
    amount: int
    form: int
    call: int
    option: int
    policy: int
    decision: int


ROWS, WIDTH = 17, len(Row._fields)
ZEROS = Row(*bytes(WIDTH))
NAMES = "abc"
"""Of the primals."""


@dataclass(frozen=True)
class Program:
    """A program.

    text: defines `program(checkpoint, …)` and `backward(checkpoint, pull, …)`, in terms of `ops` and `probe`.
    primals: the kinds of what they are given. executions: how often one backward may execute the probe.
    """

    text: str
    primals: tuple[Kind, ...]
    executions: int


def programs(grammar: Grammar) -> st.SearchStrategy[Program]:
    """Programs of this grammar; each contains a region."""
    size = ROWS * WIDTH
    return st.binary(min_size=size, max_size=size).map(lambda table: Writer(grammar, table).write())


@dataclass(frozen=True, eq=False)
class Value:
    """An array, by its name. sources: the primals that it gives gradients to. memory: whose it is; 0 may be any."""

    name: str
    kind: Kind
    sources: frozenset[str]
    memory: int = 0


@dataclass
class Function:
    """The program or a region, while it is written.

    values: known in it, in the order in which they came; numbers: names of Python numbers. depth: of regions. times:
    how often it runs. own: memory made here that no region has seen, so that it may be changed in place. lasting: how
    many values may be captured: a name that a loop gives another value may not, as a replay would find the last one.
    """

    values: list[Value]
    depth: int = 0
    times: int = 1
    is_recording: bool = True
    is_autocast: bool = False
    numbers: list[str] = field(default_factory=list)
    own: set[int] = field(default_factory=set)
    lasting: int | None = None


class NothingFits(Exception):
    """There is no value that a statement could take: it is left out."""


class Writer:
    """Writes one program."""

    def __init__(self, grammar: Grammar, table: bytes) -> None:
        self.grammar = grammar
        self.head, *self.rows = (Row(*table[i : i + WIDTH]) for i in range(0, len(table), WIDTH))
        self.primals = _one_of(grammar.primals, self.head.x)
        self.way = _one_of(grammar.ways, self.head.what)
        self.lines: list[str] = []
        self.ends: list[Callable[[Row], None]] = []  # of the blocks that are open
        self.numbers, self.memories = itertools.count(1), itertools.count(1)
        self.used = set(NAMES)
        self.executions = 0
        named = zip(NAMES, self.primals, strict=False)
        self.here = Function([Value(n, k, frozenset(n if k.is_floating else ())) for n, k in named])

    def write(self) -> Program:
        statements = self.statements()
        for row in self.rows:
            if row.what:
                with contextlib.suppress(NothingFits):
                    _one_of(statements, row.what - 1)(row)
        if not self.executions:
            self.region(ZEROS)
        while self.ends:
            self.end(self.head)
        self.results()
        given = ", ".join(NAMES[: len(self.primals)])
        text = [
            *["broken = []"] * (self.way == "after a failure"),
            f"def program(checkpoint, {given}):",
            *self.lines,
            f"def backward(checkpoint, pull, {given}):",
            *(f"    {line}" for line in WAYS[self.way].lines),
        ]
        return Program("\n".join(text), self.primals, self.executions)

    def statements(self) -> list[Callable[[Row], None]]:
        """What a row may become, the simplest first, and the more often the more it is wanted."""
        operations = self.grammar.operations
        return [
            *(lambda row, operation=o: self.operation(operation, row) for o in operations),
            *[self.region] * (len(operations) // 3),
            *[self.end] * (len(operations) // 6),
            self.loop,
            self.branch,
            *(lambda row, block=b: self.context(block) for b in self.grammar.blocks),
        ]

    def results(self) -> None:
        """The program's end: something of the first primal, something of any, and mostly all that is not used yet."""
        first = self.recent(0, lambda v: "a" in v.sources)
        second = [v for v in self.here.values if v.sources and v is not first][-1:]
        others = [v for v in self.here.values if v.name not in self.used] * (self.head.amount % 4 > 0)
        names = dict.fromkeys(v.name for v in (first, *second, *others))
        self.line(f"return {', '.join(names)},")

    # -- operations

    def operation(self, operation: Operation, row: Row) -> None:
        rule, here = operation.rule, self.here
        if operation.is_view and not here.is_recording:
            return  # to torch, such a view needs a gradient and has none: its flags don't repeat in a nested replay
        if operation.operands == 1:
            taken = [self.recent(row.x, lambda v: rule(v.kind))]
        else:
            kinds = {v.kind for v in here.values}
            usable = here.own if operation.is_change else {v.memory for v in here.values}
            x = self.recent(row.x, lambda v: v.memory in usable and any(rule(v.kind, k) for k in kinds))
            taken = [x, self.recent(row.y, lambda v: rule(x.kind, v.kind))]
        kind = rule(*(v.kind for v in taken))
        assert kind is not None
        text = operation.text.format(x=taken[0].name, y=taken[-1].name, shape=kind.shape)
        self.used.update(v.name for v in taken)
        if operation.is_change:
            self.line(text)
            return
        if here.is_autocast and "matmul" in text and kind.dtype == "float32":
            text = f'ops.astype({text}, "float32")'
        sources = frozenset[str]().union(*(v.sources for v in taken if not operation.is_cut))
        self.value(text, kind, sources, taken[0].memory if operation.is_view else None)

    # -- blocks: each is opened by a statement, and ended by another or by the program's end

    def open(self, opening: str, end: Callable[[Row], None]) -> None:
        self.line(opening)
        self.ends.append(end)

    def end(self, row: Row) -> None:
        """The end of the block that was opened last."""
        if self.ends:
            self.ends[-1](row)

    def loop(self, row: Row) -> None:
        number = self.new("i")
        self.rebinding(row, f"for {number} in range(2):", 2, number)

    def branch(self, row: Row) -> None:
        if self.here.numbers:
            self.rebinding(row, f"if {_one_of(self.here.numbers, row.y)} % 2:", 1)

    def rebinding(self, row: Row, opening: str, times: int, *numbers: str) -> None:
        """A block that at its end gives a name another value; what else is made in it is known in it only."""
        here, start = self.here, self.recent(row.x, lambda v: v.kind.is_floating)
        if not here.is_recording:
            return
        changing = Value(self.new("v"), start.kind, start.sources)
        lasting, values, known = here.lasting, len(here.values), len(here.numbers)

        def end(row: Row) -> None:
            inside = here.values[values + 1 :]
            like = [v for v in inside if (v.kind, v.sources) == (start.kind, start.sources)]
            new = _recent(like, row.x).name if like else f"ops.sin({changing.name})"
            self.line(f"{changing.name} = {new}")
            self.used.update(v.name for v in inside)
            self.ends.pop()
            del here.values[values + 1 :], here.numbers[known:]
            here.lasting, here.times = lasting, here.times // times
            here.own.clear()

        self.line(f"{changing.name} = {start.name}")
        self.open(opening, end)
        here.values.append(changing)
        here.numbers += numbers
        here.lasting, here.times = values if lasting is None else lasting, here.times * times
        here.own.clear()

    def context(self, block: str) -> None:
        """Statements without gradients, or under autocast."""
        here, opening = self.here, f"with ops.{block}({'a' * (block == 'autocast')}):"
        before = here.is_recording, here.is_autocast
        if here.is_autocast if block == "autocast" else not here.is_recording:
            return

        def end(row: Row) -> None:
            if self.lines[-1].endswith(opening):
                self.line("pass")
            self.ends.pop()
            here.is_recording, here.is_autocast = before

        self.open(opening, end)
        here.is_recording &= block != "no_grad"
        here.is_autocast |= block == "autocast"

    # -- regions

    def region(self, row: Row) -> None:
        """The beginning of a region. It knows the values around it, and what it is given by other names."""
        outer, offered = self.here, self.grammar.offered
        has_graph = Capability.FORWARD_GRAPH in offered
        if outer.depth == self.grammar.depth or not (outer.is_recording or has_graph):
            return
        captured = outer.values[: outer.lasting]
        if Capability.FREE_CAPTURES not in offered:
            captured = [v for v in captured if v.name in NAMES]
        inner = Function(captured, outer.depth + 1, outer.times, outer.is_recording, outer.is_autocast)
        known, name, options = len(captured), self.new("region"), self.options(row)
        parameters, passed, unpacking = self.arguments(row, inner)
        setting = _one_of(self.grammar.settings or ("",), row.decision)
        if row.call % 3 == 1 and Capability.DECORATOR in offered:
            self.line(f"@checkpoint.decorator({options})")
            call = f"{name}({', '.join(passed)})"
        else:
            how = f"checkpoint.using({options})" if options else "checkpoint"
            call = f"{how}({', '.join([name, *passed])})"
        self.open(
            f"def {name}({', '.join(parameters)}):",
            lambda row: self.end_of_region(row, outer, known, call, setting),
        )
        outer.own.clear()
        self.here = inner
        self.executions += inner.depth * inner.times
        for line in unpacking:
            self.line(line)
        if self.way == "after a failure" and row.decision % 2 == 0:
            self.line("if broken: raise KeyError(broken[0])")
        x = self.recent(0, lambda v: v.sources)
        self.value(f"probe({x.name})", x.kind, x.sources)

    def arguments(self, row: Row, inner: Function) -> tuple[list[str], list[str], list[str]]:
        """A region's parameters, what is passed for them, and how the region takes arrays out of containers."""
        outer, offered = self.here, self.grammar.offered
        chosen = [self.recent(byte) for byte in (row.x, row.y, row.z)[: (1, 2, 3, 0)[row.amount % 4]]]
        if Capability.CAPTURED_ONLY not in offered:
            chosen[:1] = [self.recent(row.x, lambda v: v.sources)]
        forms = [form for form in (*FORMS[:1] * 3, *FORMS) if form.needs <= offered]
        digits = [row.form // len(forms) ** i for i in range(3)]
        given = [(v, self.new("v"), _one_of(forms, digit)) for v, digit in zip(chosen, digits, strict=False)]
        given.sort(key=lambda argument: "=" in argument[2].passed)  # keywords come last
        self.used.update(v.name for v in chosen)
        inner.values += [Value(name, v.kind, v.sources, next(self.memories)) for v, name, _ in given]
        parameters = [name for _, name, _ in given]
        passed = [form.passed.format(inside=name, outside=v.name) for v, name, form in given]
        if row.call % 3 == 2:
            inner.numbers.append(self.new("n"))
            parameters.insert(0, inner.numbers[0])
            passed.insert(0, _one_of(("2", "1", *outer.numbers), row.call // 3))
        return parameters, passed, [form.taken.format(inside=name) for _, name, form in given if form.taken]

    def options(self, row: Row) -> str:
        """A region's options, as keywords."""
        texts, rest = list[str](), row.option
        for name, values in self.grammar.options:
            rest, chosen = divmod(rest, len(values) + 1)
            texts += [f"{name}={values[chosen - 1]}"] * (chosen > 0)
        bits = row.policy + 256 * row.decision
        saved = [name for i, name in enumerate(self.grammar.saved) if bits >> i & 1]
        if saved and not self.grammar.is_deciding:
            texts.append(f"save={saved}")
        elif saved and row.decision % 4 < 2:
            texts.append(f"policy=lambda name: name in {saved}")
        elif saved:
            calls = self.new("calls")
            self.line(f"{calls} = iter(range(1000000))")
            texts.append(f"policy=lambda name: next({calls}) % {2 + row.policy % 3} == 0")
        return ", ".join(texts)

    def end_of_region(self, row: Row, outer: Function, known: int, call: str, setting: str) -> None:
        """A region's results, and its call."""
        inner, offered = self.here, self.grammar.offered
        if len(inner.own) == 1:  # nothing but the probe
            x = inner.values[-1]
            self.value(f"ops.sin({x.name})", x.kind, x.sources)
        usable = inner.values[known:]
        if Capability.FORWARD_GRAPH not in offered:  # every result has a gradient, and is no array from outside
            others = {0, *(v.memory for v in inner.values[:known])}
            usable = [v for v in usable if v.sources and v.memory not in others]
        first = _recent([v for v in usable if v.sources] or usable, 0)
        unused = [v for v in usable if v.name not in self.used and v is not first] or usable
        more = [_recent(unused, byte) for byte in (row.x, row.y, row.z)[: row.amount % 4]]
        results = list(dict.fromkeys([first, *more]))
        given = [Value(self.new("v"), v.kind, v.sources, next(self.memories)) for v in results]
        names, targets = ", ".join(v.name for v in results), ", ".join(v.name for v in given)
        named = ", ".join(f'"{key}": {v.name}' for key, v in zip("klmn", results, strict=False))
        returned, taken = _one_of(
            (
                (names, f"{targets} = {call}"),
                (f"[{names}]", f"[{targets}] = {call}"),
                (f"{{{named}}}", f"[{targets}] = {call}.values()"),
            ),
            row.form if Capability.STRUCTURED_RESULTS in offered else 0,
        )
        self.line(f"return {returned}")
        self.ends.pop()
        self.here = outer
        if setting:
            self.line(f"with checkpoint.early_stop({setting}):")
        self.line("    " * bool(setting) + taken)
        outer.values += given

    # -- values and lines

    def value(self, text: str, kind: Kind, sources: frozenset[str], memory: int | None = None) -> None:
        """A new value; its memory is its own unless it is that of another."""
        here = self.here
        if memory is None:
            memory = next(self.memories)
            here.own.add(memory)
        here.values.append(Value(self.new("v"), kind, sources if here.is_recording else frozenset(), memory))
        self.line(f"{here.values[-1].name} = {text}")

    def recent(self, byte: int, fits: Callable[[Value], object] = bool) -> Value:
        """A value that fits; the last one for 0, and later ones are likelier. Raises NothingFits."""
        return _recent([v for v in self.here.values if fits(v)], byte)

    def new(self, prefix: str) -> str:
        return f"{prefix}{next(self.numbers)}"

    def line(self, text: str) -> None:
        self.lines.append("    " * (1 + len(self.ends)) + text)


T = TypeVar("T")


def _one_of(choices: Sequence[T], byte: int) -> T:
    return choices[byte % len(choices)]


def _recent(values: Sequence[Value], byte: int) -> Value:
    if not values:
        raise NothingFits
    return values[-1 - (byte * byte * len(values) >> 16)]
