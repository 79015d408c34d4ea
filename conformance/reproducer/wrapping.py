"""Lines that are too long are broken in brackets, as formatters do."""

from __future__ import annotations

import io
import tokenize

LIMIT = 120


def wrapped(text: str) -> str:
    return "\n".join(part for line in text.split("\n") for part in _broken(line))


def _broken(line: str, *, is_inside: bool = False) -> list[str]:
    """A line as several of which none is too long, where brackets allow it.

    is_inside: of brackets that were broken, so that a comma is a place to break at.
    """
    if len(line) <= LIMIT:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    pairs, commas = _places(line)
    if is_inside and commas and (at := max((c for c in commas if c < LIMIT), default=commas[0])) + 1 < len(line):
        return [*_broken(line[: at + 1]), *_broken(indent + line[at + 1 :].lstrip(), is_inside=True)]
    for start, end in reversed(pairs):
        if start < LIMIT and line[start + 1 : end].strip():
            inside = _broken(f"{indent}    {line[start + 1 : end].strip()}", is_inside=True)
            return [line[: start + 1], *inside, *_broken(indent + line[end:])]
    return [line]


def _places(line: str) -> tuple[list[tuple[int, int]], list[int]]:
    """Where the outermost brackets of a line open and close, and the commas outside of them."""
    pairs, commas, opened = list[tuple[int, int]](), list[int](), list[int]()
    shift = len(line) - len(line.lstrip())
    try:
        for part in tokenize.generate_tokens(io.StringIO(line.lstrip()).readline):
            column = part.start[1] + shift
            if part.string in ("(", "[", "{"):
                opened.append(column)
            elif part.string in (")", "]", "}") and opened:
                start = opened.pop()
                if not opened:
                    pairs.append((start, column))
            elif part.string == "," and not opened:
                commas.append(column)
    except tokenize.TokenError:
        pass  # the line is a part of a longer statement; what is whole in it can be broken
    return pairs, commas
