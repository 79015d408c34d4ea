"""A clause for one fault: what shows other faults, and what then is of no use, is left out."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ckptspec.conformance.reproducer.source import Source, free, names, pairs

UNDER_TEST = "under_test"
RUNS = ("run", "attempt")
#: What a clause makes of the implementation that holds no state of the clause's own.
STATELESS = ("ops", "torch", "api", "probe", "array")


@dataclass(frozen=True)
class Aim:
    """What a program is to show.

    label: of the assertion that fails; '' where none of the clause's own does.
    runs: how many runs came to their end or to the fault; 0 if that is unknown.
    """

    label: str = ""
    runs: int = 0


def is_use(node: ast.AST, *attributes: str) -> bool:
    """Whether a node is `under_test.<one of these>`."""
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == UNDER_TEST
        and node.attr in attributes
    )


def runs(tree: ast.AST) -> list[ast.Call]:
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and is_use(n.func, *RUNS)]


def label(node: ast.AST) -> str:
    """The label of an assertion of the clause; '' for any other statement."""
    match node:
        case ast.Assert(msg=ast.Constant(value=str(text))):
            return text
        case ast.Assert(msg=ast.JoinedStr(values=[ast.Constant(value=str(text)), *_])):  # it says what was found
            return text.removesuffix(": ")
    return ""


def trimmed(text: str, aim: Aim) -> str:
    return _without_what_is_unused(_without_other_faults(text, aim), aim)


def _without_other_faults(text: str, aim: Aim) -> str:
    """Without the clause's assertions that have another label, but for those in front, without which it says little.

    What functions assert is a part of the program. The assertion that is left says what it found.
    """
    source = Source(text)
    (function,) = source.tree.body
    assert isinstance(function, ast.FunctionDef)
    asserted = [s for s in function.body if label(s)]
    last = max((i for i, s in enumerate(asserted) if label(s) == aim.label), default=-1)
    for statement in asserted[last + 1 :]:
        source.delete(statement)
    for statement in asserted[: last + 1]:
        if label(statement) == aim.label:
            _tell(source, statement)  # type: ignore[arg-type]
    return source.result()


def _tell(source: Source, assertion: ast.Assert) -> None:
    """Let the message of a comparison end in what was found."""
    match assertion.test:
        case ast.Compare(left=ast.Name() | ast.Attribute() | ast.Subscript() | ast.Call() as left):
            found = source.of(left)
        case ast.UnaryOp(op=ast.Not(), operand=ast.Name() as left):
            found = source.of(left)
        case _:
            return
    fits = len(found) < 30 and assertion.end_col_offset + len(found) < 100  # type: ignore[operator]
    if fits and assertion.msg is not None and not set(found) & set("\"'\\{}\n"):
        source.replace(source.span(assertion.msg), 'f"' + source.of(assertion.msg)[1:-1] + f': {{{found}}}"')


def _without_what_is_unused(text: str, aim: Aim) -> str:
    """Without the runs that do not show the fault, and without what served them alone."""
    source = Source(text)
    (function,) = source.tree.body
    assert isinstance(function, ast.FunctionDef)
    body = function.body
    direct = [(s, call) for s in body if (call := _run(s)) is not None]
    root: ast.stmt | None = None
    if not aim.label and 0 < aim.runs <= len(direct) == len(runs(function)):
        root, _ = direct[aim.runs - 1]
    elif not aim.label or aim.label not in map(label, body):
        return text
    local = {s.name: s for s in body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    stateless = {n for s in body if isinstance(s, ast.Assign) for n in _stateless(s)} | set(local) | {UNDER_TEST}
    live: set[str] = set()
    is_past = root is not None  # what stands behind the run that shows the fault
    for statement in reversed(body):
        is_past = is_past and statement is not root
        is_needed = statement is root or (not is_past and _is_needed(statement, live, local, stateless, aim))
        if not is_needed:
            source.delete(statement)
        elif isinstance(statement, ast.Assign):
            live |= _assigned(source, statement, live)
        else:
            live |= free(statement)
    return source.result()


def _run(statement: ast.stmt) -> ast.Call | None:
    """The run that a statement is, or whose result it names."""
    match statement:
        case ast.Expr(value=ast.Call() as call) | ast.Assign(value=ast.Call() as call):
            return call if is_use(call.func, *RUNS) else None
    return None


def _is_needed(
    statement: ast.stmt, live: set[str], local: Mapping[str, ast.stmt], stateless: Iterable[str], aim: Aim
) -> bool:
    match statement:
        case ast.Assert():
            return bool(label(statement))
        case ast.FunctionDef() | ast.ClassDef():
            return statement.name in live
        case ast.Assign(targets=[target]):
            return bool(names(target) & live)
        case ast.Expr(value=ast.Call() as call) if is_use(call.func, *RUNS):
            return bool((_reached(call, local) - set(stateless)) & live)
        case ast.Expr(value=ast.Constant()):
            return False
    return True


def _reached(tree: ast.AST, local: Mapping[str, ast.stmt]) -> set[str]:
    """The names that a piece mentions, itself or through the functions of the clause."""
    found, new = set[str](), free(tree)
    while new:
        found |= new
        new = set().union(*(free(local[n]) for n in new if n in local)) - found
    return found


def _stateless(statement: ast.Assign) -> Iterator[str]:
    for target, value in pairs(statement):
        made = value.func if isinstance(value, ast.Call) else value
        if isinstance(target, ast.Name) and (is_use(made, *STATELESS) or isinstance(value, ast.Constant)):
            yield target.id


def _assigned(source: Source, statement: ast.Assign, live: set[str]) -> set[str]:
    """Leave of an assignment what is needed; the names that this mentions."""
    every = pairs(statement)
    kept = [(t, v) for t, v in every if names(t) & live] if len(every) > 1 else every
    if len(kept) < len(every):
        targets, values = (", ".join(source.of(pair[i]) for pair in kept) for i in (0, 1))
        source.replace(source.span(statement), f"{targets} = {values}")
    return set().union(*(names(t) | free(v) for t, v in kept))
