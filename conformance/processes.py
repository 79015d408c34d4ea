"""Clauses in several processes: `under_test.processes(2, body)`.

Each process runs the clause from its beginning up to that call, where it plays its part and ends; so a clause stays one
function, its body may use what stands around it, and nothing of it has to travel.

A process that has computed can't be forked: its library keeps threads. The parts are forked by a server, a process that
has imported the library and has done nothing with it. It is started for the first case that asks, and ends with the
process that started it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import pytest

from ckptspec.conformance.backend import Checkpointer, Host, HostError
from ckptspec.conformance.clause import registry
from ckptspec.conformance.running.preflight import bootstrap
from ckptspec.conformance.running.resolve import Source, load
from ckptspec.conformance.under_test import PlainDiffers, UnderTest, Wrong, collected
from ckptspec.conformance.verdict import Observed

LIMIT = 100
"""Seconds after which a process of a case ends itself, should the one that waits for it be gone."""


@dataclass(frozen=True)
class Recipe:
    """How another process makes a case again.

    chosen: the case's parameters, by name and as text. fault: `module:function` that plants a witness's fault.
    """

    source: Source
    device: str
    variant: str
    clause: str
    chosen: dict[str, str] = field(default_factory=dict)
    fault: str = ""

    def play(self, under_test: UnderTest, count: int, body: Callable[[UnderTest, int], Any]) -> list[Any]:
        """What the processes return. Raises what one of them raised, and dies if one of them died."""
        with tempfile.TemporaryDirectory() as folder:
            for code in _server(self.source).fork(self, count, folder):
                if code < 0:
                    os.kill(os.getpid(), -code)
            parts: list[_Part] = [pickle.loads(_answer(folder, rank).read_bytes()) for rank in range(count)]
        under_test.evidence += [entry for part in parts for entry in part.evidence]
        if failed := [part for part in parts if part.observed is not Observed.HOLDS]:
            _raise(under_test, _first(failed))
        return [part.returned for part in parts]

    @contextlib.contextmanager
    def made(self) -> Iterator[tuple[Host, Checkpointer]]:
        """The host and the checkpointer of the case."""
        adapter = load(self.source)
        host = adapter.host(self.device)
        checkpointer = adapter.variants[self.variant](host)
        with pytest.MonkeyPatch.context() as patch:
            if self.fault:
                module, _, name = self.fault.partition(":")
                checkpointer = getattr(importlib.import_module(module), name)(patch, checkpointer) or checkpointer
            yield host, checkpointer

    def run(self, under_test: UnderTest) -> None:
        """Run the clause with the case's parameters."""
        under_test.part = under_test.part or self
        clause = registry()[self.clause]
        values = {n: next(v for v in clause.each[n] if str(v) == text) for n, text in self.chosen.items()}
        clause.function(under_test, **values)


@dataclass
class _Part:
    """What came of the part that one process played; plain data."""

    returned: Any = None
    observed: Observed = Observed.HOLDS
    label: str = ""
    exception: str = ""
    phase: str = ""
    message: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    ended: float = 0.0


def _first(failed: list[_Part]) -> _Part:
    """The part that tells what went wrong: exceptions are mostly about the silence of one that ended before.

    Of several that saw something wrong, it is the one of the lowest rank, whichever was faster.
    """
    saw = [part for part in failed if part.observed is not Observed.RAISED]
    return saw[0] if saw else min(failed, key=lambda part: part.ended)


def _raise(under_test: UnderTest, part: _Part) -> NoReturn:
    """Raise here what ended a part there."""
    if part.observed is Observed.WRONG:
        raise Wrong(part.label, part.message)
    if part.observed is Observed.PLAIN:
        raise PlainDiffers(part.message)
    if part.observed is Observed.BOUND:
        bound = AssertionError(part.message)
        bound.label = part.label  # type: ignore[attr-defined]
        raise bound
    error = type(part.exception, (Exception,), {})(part.message)
    if part.observed is Observed.RAISED:
        under_test.note(error, part.phase)
    raise error


# -- in the process that plays a part


class _Played(BaseException):
    """The part is played; what it returned."""

    def __init__(self, returned: Any) -> None:
        super().__init__()
        self.returned = returned


@dataclass(frozen=True)
class _Role:
    """A process of that rank: where the clause asks for processes, it is one of them."""

    rank: int

    def play(self, under_test: UnderTest, count: int, body: Callable[[UnderTest, int], Any]) -> list[Any]:
        raise _Played(body(under_test, self.rank))


def _answer(folder: str, rank: int) -> pathlib.Path:
    return pathlib.Path(folder, f"answer-{rank}")


def _play(recipe: Recipe, rank: int, count: int, folder: str) -> None:
    """Play a part, and write what came of it into the folder."""
    with recipe.made() as (host, checkpointer), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        under_test, part, error = UnderTest(host, checkpointer), _Part(), None
        under_test.part = _Role(rank)
        try:
            with collected(), host.joined(rank, count, folder):
                recipe.run(under_test)
        except _Played as played:
            part.returned = played.returned
        except BaseException as caught:
            error = caught
        part.ended = time.monotonic()
        part.observed, part.evidence = under_test.classify(error), under_test.evidence
        if error is not None:
            part.message, part.exception = str(error), type(error).__name__
            part.label = getattr(error, "label", "") or (part.message.splitlines() or [""])[0]
            part.phase = under_test.phase_of(error) or ""
    _answer(folder, rank).write_bytes(pickle.dumps(part))


# -- the server


class _Server:
    """A process from which the parts are forked."""

    def __init__(self, source: Source) -> None:
        program = bootstrap() + (
            f"from ckptspec.conformance.processes import _serve\n_serve({json.dumps(source.to_json())!r})"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        atexit.register(self._end)

    def fork(self, recipe: Recipe, count: int, folder: str) -> list[int]:
        """Let a case's processes play their parts; their exit codes, negative for a signal. Raises HostError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            print(json.dumps([asdict(recipe), count, folder]), file=self._process.stdin, flush=True)
            codes: list[int] = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            raise HostError(f"the process that forks others ended with {self._process.poll()}") from error
        if any(code > 0 for code in codes):
            raise HostError(f"processes of the case ended with {codes}")
        return codes

    def _end(self) -> None:
        self._process.kill()
        self._process.communicate()


_server = functools.cache(_Server)


def _serve(source_json: str) -> None:
    """The server: a case a line; answers with the exit codes of its processes."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever is printed is no answer
    adapter = load(Source(**json.loads(source_json)))
    for module in getattr(adapter.host, "imports", ()):
        importlib.import_module(module)
    registry()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy all of this
    for line in sys.stdin:
        data, count, folder = json.loads(line)
        recipe = Recipe(**data | {"source": Source(**data["source"])})
        children = [_fork(recipe, rank, count, folder) for rank in range(count)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), file=answers, flush=True)


def _fork(recipe: Recipe, rank: int, count: int, folder: str) -> int:
    """The id of a process that plays a part."""
    child = os.fork()
    if child == 0:
        signal.alarm(LIMIT)
        code = 1
        try:
            _play(recipe, rank, count, folder)
            code = 0
        finally:
            os._exit(code)
    return child
