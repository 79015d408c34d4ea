"""An implementation that is right, and does something in one of its cases that the whole process feels.

Each misdeed is a variant over the tape and is done in the first case of GRAD-01, for float64; `honest` does nothing.
Whatever becomes of that one case, all others must end as the honest one's do.

    pytest conformance --adapter=tests/misdeeds.py:adapter --clause='GRAD-0[1-3]'
"""

from __future__ import annotations

import atexit
import builtins
import ctypes
import faulthandler
import gc
import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from controls import TOOLS, Call, Control, Tools, faulty, killer
from tape import TapeHost, tape_checkpointer

from ckptspec.conformance.backend import Adapter, Host, Region

RED = "\x1b[31m\x07\r\x00"
"""What a terminal acts on."""

MEGABYTE = 1 << 20


def floods() -> None:
    print(RED * MEGABYTE)
    for _ in range(50):
        os.write(1, RED.encode() * (MEGABYTE // len(RED)))
        os.write(2, b"x" * MEGABYTE)
    raise OSError("flooded")


def raises_10_megabytes() -> None:
    raise OSError(RED + "a | `b` ](javascript:alert(1)) <script>" * (10 * MEGABYTE // 40))


def writes_for_ever() -> None:
    def write() -> None:
        while True:
            os.write(2, RED.encode() + b"\n")
            time.sleep(0.01)

    threading.Thread(target=write, daemon=True).start()


def changes_warnings() -> None:
    warnings.filters.clear()
    warnings.simplefilter("error")
    warnings.warn = None  # type: ignore[assignment]


def changes_generators() -> None:
    random.seed(1)
    np.random.seed(1)
    np.seterr(all="raise")


def changes_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGABRT):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3, 0.05)


def changes_places() -> None:
    os.chdir("/")
    os.environ.clear()
    os.environ["LANG"] = RED.replace("\0", "")
    sys.path.clear()


def changes_limits() -> None:
    depth, frame = 20, sys._getframe()
    while frame.f_back is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(depth)


def leaves_threads() -> None:
    def fail() -> None:
        time.sleep(0.05)
        raise OSError(RED)

    threading.Thread(target=time.sleep, args=(1000,)).start()
    threading.Thread(target=fail).start()


def closes_outputs() -> None:
    os.close(1)
    os.close(2)


def hangs_at_exit() -> None:
    atexit.register(time.sleep, 1000)


def forks() -> None:
    os.fork()


def leaves_a_process() -> None:
    if os.fork() == 0:
        time.sleep(20)


def forgets_modules() -> None:
    for name in list(sys.modules):
        if name.startswith(("ckptspec", "numpy", "json", "hypothesis", "_pytest")):
            del sys.modules[name]


def replaces_builtins() -> None:
    for name in ("len", "isinstance", "print", "vars", "dict", "list", "range", "getattr", "__import__"):
        setattr(builtins, name, None)
    sys.stdout = sys.stderr = None
    sys.excepthook = sys.unraisablehook = None  # type: ignore[assignment]


def changes_clocks() -> None:
    time.time = time.monotonic = time.perf_counter = time.sleep = lambda *_: 0.0


def changes_tools() -> None:
    json.dumps = os.getpid = gc.collect = threading.excepthook = None  # type: ignore[assignment]


def traces() -> None:
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


def switches_the_alarm_off() -> None:
    faulthandler.cancel_dump_traceback_later()
    ctypes.PyDLL(None).sleep(1000)  # a PyDLL call keeps the interpreter's lock


MISDEEDS: dict[str, Callable[[], None]] = {
    function.__name__.replace("_", "-"): function
    for function in (
        floods, raises_10_megabytes, writes_for_ever, changes_warnings, changes_generators, changes_signals,
        changes_places, changes_limits, leaves_threads, closes_outputs, hangs_at_exit, forks, leaves_a_process,
        forgets_modules, replaces_builtins, changes_clocks, changes_tools, traces,
    )
}  # fmt: skip

HONEST = {"honest": killer(lambda: None)}


def slow(right: Call, host: Host, tools: Tools) -> Call:
    """Right, and takes its time: long enough for something to happen to the run."""

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        time.sleep(2.0)
        return right(region, args, kwargs, options)

    return call


def _adapter(name: str, controls: dict[str, Control]) -> Adapter:
    return Adapter(name, "1", TapeHost, {v: faulty(tape_checkpointer, c, TOOLS) for v, c in controls.items()})


adapter = _adapter("misdeeds", {name: killer(misdeed) for name, misdeed in MISDEEDS.items()} | HONEST)
orphans = _adapter("orphans", {"leaves": killer(leaves_a_process), "aborts": killer(os.abort)})
sleepers = _adapter("sleepers", {"switches-the-alarm-off": killer(switches_the_alarm_off)})
slowly = _adapter("slowly", {"slow": slow})
