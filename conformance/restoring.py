"""What a case changes in its process, and the suite works with, is put back when the case ends.

What belongs to the implementation, as a default dtype does, its host puts back (`Host.restore`).
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import json
import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator

import numpy as np

MODULES = (builtins, gc, json, os, random, signal, sys, threading, time, warnings, np)
"""Modules whose names are put back; builtins first, for what follows uses them."""

SIGNALS = [s for s in signal.Signals if s < signal.SIGRTMIN and s not in (signal.SIGKILL, signal.SIGSTOP)]
TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """Put back at the end what the body has changed; a process that the body has forked ends there."""
    contents = [(vars(module), dict(vars(module))) for module in MODULES]
    process, folder, environment = os.getpid(), os.getcwd(), dict(os.environ)
    modules, path = dict(sys.modules), list(sys.path)
    handlers = [(s, signal.getsignal(s)) for s in SIGNALS]
    tracing, profiling, depth = sys.gettrace(), sys.getprofile(), sys.getrecursionlimit()
    python_random, numpy_random, floating = random.getstate(), np.random.get_state(legacy=False), np.geterr()
    try:
        yield
    finally:
        for names, before in contents:
            names.update(before)
        sys.setrecursionlimit(depth)  # so that there is room for what follows
        if os.getpid() != process:
            os._exit(0)  # two processes would report the same case
        sys.modules.update(modules)
        sys.path[:] = path + [entry for entry in sys.path if entry not in path]
        if dict(os.environ) != environment:
            os.environ.clear()
            os.environ.update(environment)
        if _folder() != folder:
            os.chdir(folder)
        for timer in TIMERS:
            signal.setitimer(timer, 0)
        for number, handler in handlers:
            if signal.getsignal(number) is not handler:
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if (sys.gettrace(), sys.getprofile()) != (tracing, profiling):
            sys.settrace(tracing)
            sys.setprofile(profiling)
        random.setstate(python_random)
        np.random.set_state(numpy_random)
        np.seterr(**floating)


def _folder() -> str | None:
    """The current folder; None if it is gone."""
    with contextlib.suppress(FileNotFoundError):
        return os.getcwd()
    return None
