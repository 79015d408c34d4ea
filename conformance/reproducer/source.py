"""Python text that is changed in places: the rest keeps its comments and its layout."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator


class Source:
    """A text, its tree, and replacements by position. A later replacement swallows those inside it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tree = ast.parse(text)
        self._bytes = text.encode()  # positions in a tree count bytes
        lines = self._bytes.splitlines(keepends=True)
        self._starts = [0]
        for line in lines:
            self._starts.append(self._starts[-1] + len(line))
        self._edits: dict[tuple[int, int], bytes] = {}

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Where a node begins and ends."""
        start = self._starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def lines(self, node: ast.stmt) -> tuple[int, int]:
        """Where the lines of a statement begin and end, its decorators and comments behind it included."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return self._starts[first - 1], self._starts[node.end_lineno or first]

    def commented(self, node: ast.stmt) -> tuple[int, int]:
        """`lines`, with the comments directly above."""
        start, end = self.lines(node)
        at = self._starts.index(start)
        while at > 0 and self._bytes[self._starts[at - 1] : self._starts[at]].lstrip().startswith(b"#"):
            at -= 1
        return self._starts[at], end

    def replace(self, span: tuple[int, int], text: str) -> None:
        start, end = span
        self._edits = {(s, e): t for (s, e), t in self._edits.items() if e <= start or s >= end or (s, e) == span}
        self._edits[span] = text.encode()

    def delete(self, statement: ast.stmt) -> None:
        """Take a statement away, with its lines."""
        self.replace(self.lines(statement), "")

    def exchange(self, call: ast.Call, argument: ast.expr | ast.keyword, text: str) -> None:
        """Put a text, or nothing, in the place of a call's argument."""
        parts = sorted([*call.args, *call.keywords], key=self.span)
        i = parts.index(argument)
        start, end = self.span(argument)
        if not text and i > 0:
            start = self.span(parts[i - 1])[1]
        elif not text and i + 1 < len(parts):
            end = self.span(parts[i + 1])[0]
        self.replace((start, end), text)

    def rendered(self, span: tuple[int, int]) -> str:
        """What stands there now."""
        start, end = span
        parts, at = [], start
        for (s, e), text in sorted(self._edits.items()):
            if start <= s and e <= end:
                parts += [self._bytes[at:s], text]
                at = e
        return b"".join([*parts, self._bytes[at:end]]).decode()

    def of(self, node: ast.AST) -> str:
        """What stands now where a node stood."""
        return self.rendered(self.span(node))

    def result(self) -> str:
        return self.rendered((0, len(self._bytes)))


def names(tree: ast.AST) -> set[str]:
    """Every name that a piece mentions; a binding is a mention too."""
    return {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}


def free(tree: ast.AST) -> set[str]:
    """The names that a piece takes from around it."""
    match tree:
        case ast.Name():
            return {tree.id}
        case ast.FunctionDef() | ast.Lambda():
            arguments = tree.args
            parameters = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            parameters += [a for a in (arguments.vararg, arguments.kwarg) if a]
            body = tree.body if isinstance(tree.body, list) else [tree.body]
            inside = set().union(*map(free, body)) - {p.arg for p in parameters} - set(_local(body))
            around = [*arguments.defaults, *arguments.kw_defaults, *getattr(tree, "decorator_list", ())]
            return inside.union(*(free(node) for node in around if node))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            targets = set().union(*(names(g.target) for g in tree.generators))
            return set().union(*map(free, ast.iter_child_nodes(tree))) - targets
    return set().union(*map(free, ast.iter_child_nodes(tree)))


def _local(body: Iterable[ast.AST]) -> Iterator[str]:
    """The names that the statements of a function bind, those of inner functions left out."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif not isinstance(node, ast.Lambda):
            yield from _local(ast.iter_child_nodes(node))


def attributes(tree: ast.AST) -> set[str]:
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}


def bound(tree: ast.AST) -> Iterator[str]:
    """Every name that a piece binds anywhere inside, once a binding."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            yield node.name


def pairs(statement: ast.Assign) -> list[tuple[ast.expr, ast.expr]]:
    """What is assigned to what: one by one where two tuples are written out."""
    match statement:
        case ast.Assign(targets=[ast.Tuple() as targets], value=ast.Tuple() as values):
            if len(targets.elts) == len(values.elts):
                return list(zip(targets.elts, values.elts, strict=True))
    return [(statement.targets[0], statement.value)]


def tidy(text: str) -> str:
    """Without the blank lines and the spaces that replacements leave behind."""
    text = re.sub(r"[ \t]+$", "", text, flags=re.M)
    text = re.sub(r"\n{3,}", "\n\n", text)
    return re.sub(r":\n\n+(?= )", ":\n", text).strip("\n") + "\n"
