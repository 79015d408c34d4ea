"""Text of an implementation, made safe for a terminal: it can't move the cursor, colour, ring, hide or flood."""

from __future__ import annotations

from typing import Any

LIMIT = 10_000
"""Characters of a text that are shown."""


def printable(text: object, limit: int = LIMIT) -> str:
    """The text with what acts or hides written out, as `\\x1b`; lines and tabs stay. Cut off at `limit`."""
    text = str(text)
    shown = "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text[:limit])
    return shown if len(text) <= limit else f"{shown}… and {len(text) - limit} more characters"


def line(text: object, limit: int = 300) -> str:
    """`printable`, on one line."""
    return " ".join(printable(text, limit).split())


def all_printable(value: Any) -> Any:
    """A report of pytest's, or a part of one, with every text in it made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list | tuple):
        return type(value)([all_printable(v) for v in value])
    if hasattr(value, "__dict__"):
        vars(value).update({name: all_printable(v) for name, v in vars(value).items()})
    return value
