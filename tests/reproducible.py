"""Faults on the tape, each an adapter's variant with words for reproducers, which call the variant itself.

pytest conformance --adapter=tests/reproducible.py:adapter --clause=GRAD-01
"""

from __future__ import annotations

import functools
import os
import pathlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controls import CONTROLS, TOOLS, Call, Control, faulty
from tape import TapeHost, tape_checkpointer

from ckptspec.conformance.backend import Adapter, Checkpointer, Host, Region, Words

WORDS = str(pathlib.Path(__file__).parent / "words" / "tape.py")


def raising(phase: int) -> Control:
    """The region raises in that one of its executions: 1 is forward, 2 the replay."""

    def control(right: Call, host: Host, tools: object) -> Call:
        def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
            executions = 0

            def counted(*args: Any, **kwargs: Any) -> Any:
                nonlocal executions
                executions += 1
                if executions == phase:
                    raise LookupError('it "fails" \\ here\nand """there"""')
                return region(*args, **kwargs)

            return right(counted, args, kwargs, options)

        return call

    return control


def striking(strike: Callable[[], object]) -> Control:
    def control(right: Call, host: Host, tools: object) -> Call:
        return lambda *given: strike()

    return control


FAULTS: dict[str, Control] = {
    "right": lambda right, host, tools: right,
    "plain call": CONTROLS["plain-call"],
    "two replays": CONTROLS["two-replays"],
    "keeps everything": CONTROLS["keeps-everything"],
    "zero values": CONTROLS["zero-values"],
    "zero gradients": CONTROLS["zero-gradients"],
    "raises in forward": raising(1),
    "raises in backward": raising(2),
    "aborts": striking(os.abort),
    "hangs": striking(lambda: time.sleep(1000)),
}


def _variant(name: str, host: TapeHost) -> Checkpointer:
    words = Words((WORDS,), {"CHECKPOINTER": f'reproducible.checkpointer("{name}")'}, ("reproducible",))
    return replace(faulty(tape_checkpointer, FAULTS[name], TOOLS)(host), words=words)


def checkpointer(name: str) -> Checkpointer:
    """What a script calls."""
    return faulty(tape_checkpointer, FAULTS[name], TOOLS)(TapeHost())


adapter = Adapter("faults", "1", TapeHost, {name: functools.partial(_variant, name) for name in FAULTS})
