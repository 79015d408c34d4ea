"""What the processes of a run write to the error output by themselves, past pytest, arrives as printable text.

Such are the last words of a process that dies, and what a thread writes between two cases.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from ckptspec.conformance.printable import printable

LIMIT = 200_000
"""Characters that are shown; what comes after them is dropped."""


@contextlib.contextmanager
def printable_errors() -> Iterator[None]:
    """In the body, for this process and those that it starts, descriptor 2 leads here, and on to where it led."""
    outside = os.dup(2)
    source, target = os.pipe()
    os.dup2(target, 2)
    os.close(target)
    reader = threading.Thread(target=_pass_on, args=(source, os.dup(outside)), daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(outside, 2)
        os.close(outside)
        reader.join(1.0)  # a process that was left behind may keep the pipe open


def _pass_on(source: int, outside: int) -> None:
    shown = 0
    with open(source, errors="replace") as text:
        while part := text.readline(10_000):
            if shown < LIMIT:
                os.write(outside, printable(part).encode())
            shown += len(part)
    os.close(outside)
