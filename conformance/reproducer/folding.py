"""A clause for one of its cases: what depends on the case's parameters alone is decided, and the rest left out."""

from __future__ import annotations

import ast
import json
import operator
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from ckptspec.conformance.reproducer.source import Source, bound, names

UNKNOWN: Any = object()

COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip

#: What may stand anywhere in an expression without parentheses.
TIGHT = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Dict, ast.Tuple)


def folded(text: str, parameters: Mapping[str, Any], truthy: Collection[str] = ()) -> str:
    """The text of a function, its parameters known; those that the text binds again become assignments.

    truthy: names of which it is known that they are true.
    """
    source = Source(text)
    (function,) = source.tree.body
    assert isinstance(function, ast.FunctionDef)
    times = Counter(bound(function))
    formatted = set().union(*(names(n) for n in ast.walk(function) if isinstance(n, ast.JoinedStr)))
    known = {name: value for name, value in parameters.items() if times[name] == 0 and name not in formatted}
    _Folding(source, known, truthy, times).visit(function)
    others = [f"    {name} = {literal(value)}\n" for name, value in parameters.items() if name not in known]
    start, _ = source.lines(function.body[0])
    return source.rendered((0, start)) + "".join(others) + source.rendered((start, len(text.encode())))


def literal(value: object) -> str:
    """A constant as Python text."""
    if isinstance(value, str) and value.replace("\n", "").isprintable():
        return json.dumps(value, ensure_ascii=False)
    return ascii(value)


class _Folding(ast.NodeVisitor):
    """Visits a node's parts first, so that what replaces it is made of what they have become."""

    def __init__(
        self, source: Source, known: Mapping[str, Any], truthy: Collection[str], times: Mapping[str, int]
    ) -> None:
        self.source, self.known, self.truthy = source, known, truthy
        #: Names that stand for a dictionary written out.
        self.tables = {
            node.targets[0].id: node.value
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and isinstance(node.value, ast.Dict)
            and times[node.targets[0].id] == 1
        }

    # -- values

    def value(self, node: ast.AST) -> Any:
        """What an expression is, or UNKNOWN."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.known.get(node.id, UNKNOWN)
            case ast.UnaryOp(op=ast.Not()):
                value = self.value(node.operand)
                return UNKNOWN if value is UNKNOWN else not value
            case ast.BoolOp():
                decides = isinstance(node.op, ast.Or)
                values = [self.value(v) for v in node.values]
                if any(v is not UNKNOWN and bool(v) is decides for v in values):
                    return decides
                return UNKNOWN if UNKNOWN in values else values[-1]
            case ast.Compare(ops=[compare]) if type(compare) in COMPARISONS:
                sides = self.value(node.left), self.value(node.comparators[0])
                return UNKNOWN if UNKNOWN in sides else COMPARISONS[type(compare)](*sides)
            case ast.Call(func=ast.Attribute() as method):
                values = [self.value(part) for part in (method.value, *node.args)]
                if isinstance(values[0], str) and UNKNOWN not in values:
                    return getattr(values[0], method.attr)(*values[1:])
        return UNKNOWN

    def truth(self, node: ast.AST) -> Any:
        """Whether an expression is true, or UNKNOWN."""
        if isinstance(node, ast.Name) and node.id in self.truthy:
            return True
        value = self.value(node)
        return value if value is UNKNOWN else bool(value)

    def chosen(self, node: ast.AST) -> ast.AST:
        """The part that an expression which chooses by a known value comes down to."""
        table: ast.AST = ast.Pass()
        default: ast.AST = node
        match node:
            case ast.IfExp() if (value := self.truth(node.test)) is not UNKNOWN:
                return self.chosen(node.body if value else node.orelse)
            case ast.Subscript(value=table, slice=key):
                pass
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=[key, default]):
                pass
            case _:
                return node
        if isinstance(table, ast.Name):
            table = self.tables.get(table.id, table)
        if isinstance(table, ast.Dict) and (wanted := self.value(key)) is not UNKNOWN:
            entries = zip(table.keys, table.values, strict=True)
            return next((value for k, value in entries if k and self.value(k) == wanted), default)
        return node

    # -- expressions

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Left as it is: before Python 3.12, positions inside a formatted text are not those in the file."""

    def generic_visit(self, node: ast.AST) -> None:
        super().generic_visit(node)
        if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
            value, chosen = self.value(node), self.chosen(node)
            if value is not UNKNOWN:
                self.source.replace(self.source.span(node), literal(value))
            elif chosen is not node:
                text = self.source.of(chosen)
                self.source.replace(self.source.span(node), text if isinstance(chosen, TIGHT) else f"({text})")

    def visit_IfExp(self, node: ast.IfExp) -> None:
        super().generic_visit(node)
        if (chosen := self.chosen(node)) is not node:  # what stood without parentheses needs none now
            self.source.replace(self.source.span(node), self.source.of(chosen))

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        is_or = isinstance(node.op, ast.Or)
        left = [v for v in node.values if self.truth(v) in (UNKNOWN, is_or)]  # the others leave it open
        decided = [i for i, v in enumerate(left) if self.truth(v) is is_or]
        left = left[: decided[0] + 1] if decided else left
        if self.value(node) is UNKNOWN and len(left) < len(node.values):
            word = " or " if is_or else " and "
            self.source.replace(self.source.span(node), word.join(self.source.of(v) for v in left))

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        called = self.chosen(node.func)
        for keyword in node.keywords:
            is_passed_on = isinstance(keyword.value, ast.Name) and keyword.value.id == keyword.arg
            if is_passed_on and self.value(keyword.value) is None:
                self.source.exchange(node, keyword, "")
        match node:
            case ast.Call(func=ast.Name(id="getattr"), args=[thing, name]) if isinstance(self.value(name), str):
                self.source.replace(self.source.span(node), f"{self.source.of(thing)}.{self.value(name)}")
            case ast.Call(args=[], keywords=[]) if called is not node.func and isinstance(called, ast.Lambda):
                self.source.replace(self.source.span(node), self.source.of(called.body))

    def visit_keyword(self, node: ast.keyword) -> None:
        """`**{"name": value}` as `name=value`."""
        self.generic_visit(node)
        if node.arg is None and isinstance(node.value, ast.Dict):
            entries = zip(node.value.keys, node.value.values, strict=True)
            given = [(self.value(name) if name else UNKNOWN, value) for name, value in entries]
            if all(isinstance(name, str) for name, _ in given):
                text = ", ".join(f"{name}={self.source.of(value)}" for name, value in given)
                self.source.replace(self.source.span(node), text)

    # -- statements

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.visit(node.args)
        self.visit_block(node.body)

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item)
        self.visit_block(node.body)

    def visit_block(self, block: list[ast.stmt]) -> None:
        for i, statement in enumerate(block):
            self.visit(statement)
            if self.ends(statement):
                for unreachable in block[i + 1 :]:
                    self.source.delete(unreachable)
                return

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        self.visit_block(node.body)
        self.visit_block(node.orelse)
        for branch in [node, *self.open_branches(node)]:
            block = self.block(branch)
            if block == []:
                self.source.delete(branch)
            elif block is not None and block[0] is not branch and (branch is node or not self.is_elif(block)):
                self.source.replace(self.source.lines(branch), self.put(branch, block, is_else=branch is not node))

    def open_branches(self, node: ast.If) -> Iterator[ast.If]:
        """The decided `elif` of an open `if`."""
        if self.block(node) is None and self.is_elif(node.orelse):
            branch = node.orelse[0]
            assert isinstance(branch, ast.If)
            if self.block(branch) is not None:
                yield branch

    def put(self, branch: ast.If, block: list[ast.stmt], *, is_else: bool) -> str:
        """The text of a block in the place of the `if` or `elif` that comes down to it."""
        start, end = self.source.commented(block[0])[0], self.source.lines(block[-1])[1]
        text, indent = textwrap.dedent(self.source.rendered((start, end))), " " * branch.col_offset
        if self.is_elif(block):
            text = text.replace("elif", "if", 1)
        return f"{indent}else:\n{textwrap.indent(text, indent + '    ')}" if is_else else textwrap.indent(text, indent)

    def is_elif(self, block: list[ast.stmt]) -> bool:
        if len(block) != 1 or not isinstance(block[0], ast.If):
            return False
        start, _ = self.source.span(block[0])
        return self.source.text.encode()[start:].startswith(b"elif")

    def block(self, node: ast.If) -> list[ast.stmt] | None:
        """The statements that a decided `if` comes down to; None for one that is open."""
        value = self.value(node.test)
        if value is UNKNOWN:
            return None
        if value:
            return node.body
        if self.is_elif(node.orelse):
            inner = self.block(node.orelse[0])  # type: ignore[arg-type]
            return node.orelse if inner is None else inner
        return node.orelse

    def ends(self, statement: ast.stmt) -> bool:
        """Whether nothing after the statement is reached."""
        if isinstance(statement, ast.If):
            block = self.block(statement)
            return bool(block) and self.ends(block[-1])  # type: ignore[index]
        return isinstance(statement, ast.Return | ast.Raise)
