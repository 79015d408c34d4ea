"""A clause about drawn programs, as the one program that was found to break it."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

from ckptspec.conformance.reproducer.source import Source
from ckptspec.conformance.reproducer.trimming import is_use

#: How backward goes, given what the program's own text defines as `backward`.
BACKWARD = "lambda pull: backward(under_test.checkpoint, pull, *primals)"


def is_exploring(text: str) -> bool:
    return any(is_use(node, "explore") for node in ast.walk(ast.parse(text)))


def settled(text: str, found: dict[str, Any]) -> str:
    """The text of a clause's function with the program in the place of `under_test.explore`; found: its evidence."""
    program, primals = found["program"], found["primals"]
    source = Source(text)
    (function,) = source.tree.body
    assert isinstance(function, ast.FunctionDef)
    check = next(s for s in function.body if isinstance(s, ast.FunctionDef))
    is_plain = "def backward(checkpoint, pull, a, b, c):\n    return pull()" in program
    tolerance = 1e-4 if "float32" in f"{program}{primals}" else 1e-9
    for node in ast.walk(check):
        match node:
            case ast.keyword(arg="backward") if is_plain:
                call = next(n for n in ast.walk(check) if isinstance(n, ast.Call) and node in n.keywords)
                source.exchange(call, node, "")
            case ast.keyword(arg="backward"):
                source.replace(source.span(node), f"backward={BACKWARD}")
            case ast.keyword(arg="tolerance"):
                source.replace(source.span(node), f"tolerance={tolerance}")
    start, end = source.lines(check.body[0])[0], source.lines(check.body[-1])[1]
    steps = textwrap.dedent(source.rendered((start, end)))
    defined, _, going = program.partition("def backward")
    lines = defined if is_plain else f"{defined}\ndef backward{going}\n"
    arrays = [
        f"    under_test.array({', '.join(map(str, p['values']))}, dtype={p['dtype']!r}, shape={tuple(p['shape'])}),\n"
        for p in primals
    ]
    body = f"ops, probe = under_test.ops, under_test.probe()\n\n{lines}\nprimals = (\n{''.join(arrays)})\n{steps}"
    return "def main():\n" + textwrap.indent(body, "    ")
