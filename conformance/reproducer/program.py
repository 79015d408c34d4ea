"""From a clause to the text of a program, and what the text needs of a script."""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any

from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause
from ckptspec.conformance.reproducer.exploring import is_exploring, settled
from ckptspec.conformance.reproducer.fault import Fault
from ckptspec.conformance.reproducer.source import Source
from ckptspec.conformance.reproducer.spelling import Unspeakable
from ckptspec.conformance.reproducer.trimming import RUNS, is_use, runs
from ckptspec.conformance.reproducer.vocabulary import Vocabulary, mentions

#: What regions may be given, by the suite's names.
OPTIONS = frozenset({
    "early_stop", "determinism_check", "preserve_rng_state", "save", "save_names", "policy", "context_fn", "debug",
    "respect_saved_tensors_hooks",
})  # fmt: skip


def text_of(clause: Clause, record: Record) -> str:
    """The clause's function as `main`, without decorators and docstring. Raises Unspeakable."""
    source = Source(textwrap.dedent(inspect.getsource(clause.function)))
    (function,) = source.tree.body
    assert isinstance(function, ast.FunctionDef)
    _, start = source.lines(function.body[0])
    text = "def main():\n" + source.rendered((start, len(source.text.encode()))).lstrip("\n")
    if not is_exploring(text):
        return text
    if not record.evidence or not record.evidence[-1].get("program"):
        raise Unspeakable("the program is not known")
    return settled(text, record.evidence[-1])


def parameters(clause: Clause, given: str) -> dict[str, Any]:
    """The values of a case's parameters, which a record has as one text."""
    for values in itertools.product(*clause.each.values()):
        if "-".join(map(str, values)) == given:
            return dict(zip(clause.each, values, strict=True))
    raise Unspeakable(f"{clause.id} has no case {given!r}")


def _results(tree: ast.AST) -> set[str]:
    """The names of what runs have returned."""
    calls = {id(call) for call in runs(tree)}
    assigned = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    results = [a for a in assigned if any(id(part) in calls for part in ast.walk(a.value))]
    return {n.id for a in results for t in a.targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def uses_results(tree: ast.AST) -> bool:
    results = _results(tree)
    return any(isinstance(n, ast.Name) and n.id in results and isinstance(n.ctx, ast.Load) for n in ast.walk(tree))


def probe(tree: ast.AST, fault: Fault) -> str:
    """What a probe is: something that counts only where counts matter, an operator only where it must be one."""
    results = _results(tree)
    is_counting = fault.is_unreplayed or ".executions" in mentions(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="forward" | "backward", value=ast.Name(id=name)):
                is_counting |= name in results
            case ast.Attribute(attr="forward" | "backward", value=ast.Attribute(attr="plain", value=ast.Name(id=name))):
                is_counting |= name in results
    if "'probe'" in mentions(tree) or any(is_use(n, "compiled") for n in ast.walk(tree)):
        return "ProbeOperator"  # policies see it, and compilers leave it as it is
    return "Probe" if is_counting else "identity"


def options(tree: ast.AST, words: Vocabulary) -> list[str]:
    """The options that regions are given, by the library's names."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    given = {k.arg for n in calls if getattr(n.func, "attr", "") == "using" for k in n.keywords}
    if None in given:  # a dictionary of them
        given |= {name for name in OPTIONS if f"'{name}'" in mentions(tree)}
    return sorted({words.option(name)[0] for name in given if name})


def always_given(tree: ast.AST) -> set[str]:
    """The keywords that every run is given, with a "==" behind them."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") in RUNS]
    given = [{f"{k.arg}==" for k in call.keywords} for call in calls]
    return set.intersection(*given) if given else set()
