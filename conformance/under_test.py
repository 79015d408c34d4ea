"""What a clause holds in its hand: the implementation under test.

`run` executes a program plain, plain again, and checkpointed, always from the same seed; it compares values and
gradients and counts probes by phase. Comparing values is done here alone and raises `Wrong`; what a clause asserts
itself is about bounds, counts and causes.

A pass needs evidence: every run must show a replay during backward, unless it says `replays=0`, and then another run
of the same case must show one.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import pathlib
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ckptspec.conformance.backend import Array, Checkpointer, Host, MissingFact, NotWritten
from ckptspec.conformance.comparing import Place, difference, flatten, map_leaves
from ckptspec.conformance.explore import DEFAULT, Exploration, Explored, explore
from ckptspec.conformance.grammar import grammar
from ckptspec.conformance.handles import Api, Checkpoint, Plain, Pull
from ckptspec.conformance.observing import Counts, Held, Observation, Probe, Seen
from ckptspec.conformance.verdict import Observed

SEED = 20180101

Program = Callable[..., Any]
"""`program(checkpoint, *primals)`: a small computation that contains regions."""


class Wrong(AssertionError):
    """A value differs from the plain run. `label` is "value" or "gradient"."""

    def __init__(self, label: str, message: str) -> None:
        super().__init__(message)
        self.label = label


class NoReplay(AssertionError):
    """Nothing was executed again on behalf of a backward, so that nothing was tested."""

    label = "no replay was seen in backward"


class PlainDiffers(Exception):
    """The plain run does not do what the clause says it does, or does not repeat."""


@dataclass(frozen=True)
class Warned:
    """A warning. `is_at_call`: it points to the caller's line and not into the implementation."""

    text: str
    is_at_call: bool


class Part(Protocol):
    """How a case gets its processes, or what this process is among them."""

    def play(self, under_test: UnderTest, count: int, body: Callable[[UnderTest, int], Any]) -> list[Any]: ...


class UnderTest:
    """One case's view of the implementation: the host's operations, arrays, probes and `run`."""

    def __init__(self, host: Host, checkpointer: Checkpointer, exploration: Exploration = DEFAULT) -> None:
        self._host = host
        self._checkpointer = checkpointer
        self._probes: list[Probe] = []
        self._left: list[tuple[BaseException, str]] = []
        self._phase = "forward"
        self._guard: Callable[..., Any] = _unguarded
        self._held: Callable[[], int] = _nothing_held
        self._exploration = exploration
        self.evidence: list[dict[str, Any]] = []
        self.library_seconds = 0.0
        self.part: Part | None = None
        self.ops = host.ops

    # -- what programs are made of

    @property
    def phase(self) -> str:
        """ "forward", or "backward" once the program has returned and backward began."""
        return self._phase

    @property
    def torch(self) -> Any:
        """The module with torch's names (needs Fact.TORCH_NAMES)."""
        if self._host.torch is None:
            raise MissingFact(f"{self._host.name} has no module with torch's names")
        return self._host.torch

    @property
    def api(self) -> Any:
        """The module with torch.utils.checkpoint's names; exceptions of its functions count as the checkpointer's."""
        return Api(self._checkpointer.api, self._guarded)

    def probe(self, name: str | None = None) -> Probe:
        """A new probe; its counts stand in what `run` returns."""
        self._probes.append(Probe(self._host, name or f"probe{len(self._probes)}"))
        return self._probes[-1]

    def array(self, *values: float, dtype: str = "float64", shape: tuple[int, ...] | None = None) -> Array:
        """An array, differentiable where it is given to `run`. Without values: evenly spaced between 0.1 and 0.9."""
        if not values:
            size = int(np.prod(shape)) if shape is not None else 4
            values = tuple(np.linspace(0.1, 0.9, size))
        filled = np.asarray(values, dtype)
        return self._host.array(filled if shape is None else filled.reshape(shape))

    def gradient(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """The gradient of `sum(fn(x))` with respect to x, itself differentiable."""
        gradient = self._host.gradient(fn)
        return lambda x: self._guard(gradient, x)

    def named(self, array: Array, name: str) -> Array:
        """The same value under a name for the option `save_names`."""
        return self._host.named(array, name)

    def key(self, seed: int = 0) -> Any:
        """A key for a random operation."""
        return self._host.key(seed)

    def differentiate(self, fn: Callable[..., Array], *primals: Array) -> tuple[Array, tuple[Array, ...]]:
        """The value of `fn(*primals)` and the gradients of its sum: a differentiation beside that of `run`."""
        outputs, pullback = self._host.vjp(lambda *copies: (fn(*copies),), *primals)
        return outputs[0], tuple(self._guard(pullback, [self._host.ones_like(outputs[0])], False))

    def forward_derivative(self, fn: Callable[[Array], Array], x: Array, tangent: Array) -> tuple[Array, Array]:
        """The value of `fn(x)` and its derivative along the tangent, in forward mode and cut off from the graph."""
        value, derivative = self._guard(self._host.jvp, fn, x, tangent)
        return value, derivative

    def batched(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """`fn` mapped over the first axis."""
        return self._host.batched(fn)

    def noted(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call; an exception that leaves it counts as the implementation's, as it does where `pull` is called."""
        return self._guard(lambda: call(*args, **kwargs))

    def in_threads(self, *calls: Callable[[], Any]) -> list[Any]:
        """The results of calls that run at the same time, each in a thread of its own. Raises the first exception."""
        start = threading.Barrier(len(calls))

        def run(call: Callable[[], Any]) -> Any:
            with self._host.deterministic():  # such settings may be a thread's own
                start.wait(timeout=60)
                return call()

        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            futures = [pool.submit(run, call) for call in calls]
        return [future.result() for future in futures]

    def compiled(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn` compiled, and in a plain run `fn` itself; what leaves a call counts as the implementation's."""
        if self._guard is _unguarded:
            return fn
        compiled = self._host.compile(fn)
        return lambda *args: self._guard(compiled, *args)

    def processes(self, count: int, body: Callable[[UnderTest, int], Any]) -> list[Any]:
        """What `body(under_test, rank)`, run in several processes that communicate, returns in each: plain data.

        Each process runs the clause from its beginning up to this call, and ends here.
        """
        if self.part is None:
            raise MissingFact("this run cannot start other processes")
        start = time.perf_counter()
        try:
            return self.part.play(self, count, body)
        finally:
            self.library_seconds += time.perf_counter() - start

    def flag(self) -> threading.Event:
        """A flag that one thread can `set` and another `wait(seconds)` for."""
        return threading.Event()

    def needs_gradient(self, array: Array) -> bool:
        return self._host.needs_gradient(array)

    def stop_gradient(self, array: Array) -> Array:
        return self._host.stop_gradient(array)

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy of the values, for a clause's own assertion."""
        return self._host.numpy(array)

    def held(self) -> int:
        """The bytes that arrays hold now which were made since this execution began (needs `memory=True`)."""
        return self._held()

    def seed(self, seed: int) -> None:
        """Seed the global generator."""
        self._host.seed(seed)

    def watch(self, thing: object) -> Callable[[], bool]:
        """A function that says whether the object is still alive."""
        reference = weakref.ref(thing)
        return lambda: reference() is not None

    @contextlib.contextmanager
    def warnings(self) -> Iterator[list[Warned]]:
        """Yields a list that holds the warnings of the body once the body is done."""
        found: list[Warned] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
        folder = pathlib.Path(__file__).parent  # a clause's calls pass through this file
        found += [Warned(str(w.message), pathlib.Path(w.filename).parent == folder) for w in caught]

    # -- running

    def run(
        self,
        program: Program,
        *primals: Array,
        replays: int = 1,
        backward: Callable[[Pull], Any] | None = None,
        memory: bool = False,
        plain: Program | None = None,
        tolerance: float = 0.0,
    ) -> Seen:
        """Execute the program plain, plain again and checkpointed, and demand equal values and gradients.

        replays: the least number of executions on behalf of backward that a pass needs.
        backward: what is done with the pullback; what it returns is compared. Default: `pull()`.
        memory: also count held bytes.
        plain: what the plain runs execute, where the plain run of `program` is refused or tells another story.
        tolerance: the difference, relative to an array's largest element, that is none; a clause says why it is not 0.
        Raises what left the checkpointer or a pullback, Wrong, NoReplay, or PlainDiffers.
        """
        seen = self.attempt(
            program, *primals, replays=replays, backward=backward, memory=memory, plain=plain, tolerance=tolerance
        )
        if seen.error is not None:
            raise seen.error
        return seen

    def attempt(
        self,
        program: Program,
        *primals: Array,
        replays: int = 1,
        backward: Callable[[Pull], Any] | None = None,
        memory: bool = False,
        plain: Program | None = None,
        tolerance: float = 0.0,
    ) -> Seen:
        """`run`, but an exception of the checkpointed execution is returned as `error`, with the phase it came in."""
        go = backward or (lambda pull: pull())
        first, again = (self._observe(Observation(), plain or program, Plain(), primals, go, memory) for _ in range(2))
        self._check_plain(first, again)
        seen = Seen(plain=first)
        self._observe(seen, program, self._handle(), primals, go, memory)
        self._note(seen)
        if seen.error is None:
            self._compare(first, seen, tolerance)
            if seen.replays < replays:
                raise NoReplay(f"{NoReplay.label}: {seen.replays} executions, at least {replays} needed")
        return seen

    def explore(self, check: Callable[..., None], **asked: Any) -> None:
        """Try `check(program, primals, drawn)` on drawn programs; `asked`: what is in them, see `grammar`.

        The smallest program on which the check raises is in the evidence, and a note of the exception.
        """
        words = grammar(self._host, self._checkpointer, **asked)
        first, found = len(self.evidence), Explored()
        try:
            explore(self, words, check, self._exploration, (PlainDiffers, MissingFact), found)
        finally:
            found.replays = sum(run["replays"] for run in self.evidence[first:])
            self.evidence[first:] = [vars(found)]

    def finish(self) -> None:
        """Demand that the case as a whole has seen a replay."""
        if not any(run["replays"] > 0 for run in self.evidence):
            raise NoReplay(f"{NoReplay.label}: no run of this case replayed anything")

    def classify(self, error: BaseException | None) -> Observed:
        """What a case's outcome is an observation of."""
        if error is None:
            return Observed.HOLDS
        if isinstance(error, NotWritten):
            return Observed.PLAIN
        if any(error is left for left, _ in self._left):
            return Observed.RAISED
        if isinstance(error, Wrong):
            return Observed.WRONG
        if isinstance(error, MissingFact | PlainDiffers):
            return Observed.PLAIN
        return Observed.BOUND if isinstance(error, AssertionError) else Observed.OTHER

    def phase_of(self, error: BaseException | None) -> str | None:
        """The phase in which an exception left the checkpointer or a pullback."""
        return next((phase for left, phase in reversed(self._left) if left is error), None)

    # -- how

    def _handle(self) -> Plain | Checkpoint:
        """The `checkpoint` that a program is given."""
        return Checkpoint(self._checkpointer, self._guarded, {})

    def note(self, error: BaseException, phase: str) -> None:
        """An exception is the implementation's, and came in that phase."""
        self._left.append((error, phase))

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call, and note an exception that comes out, with the phase."""
        try:
            return call(*args)
        except BaseException as error:
            if not any(error is left and phase == self._phase for left, phase in self._left):
                self.note(error, self._phase)
            raise

    def _observe(
        self,
        seen: Observation,
        program: Program,
        checkpoint: Plain | Checkpoint,
        primals: Sequence[Array],
        backward: Callable[[Pull], Any],
        memory: bool,
    ) -> Observation:
        """One execution. Exceptions are recorded in `seen`, those that end a process included."""
        host = self._host
        structure: Any = None

        def flat(*copies: Array) -> tuple[Array, ...]:
            nonlocal structure
            structure, arrays = flatten(program(checkpoint, *copies), host.is_array)
            return tuple(arrays)

        # A plain run notes nothing: what it raises is the host's or the program's own.
        self._guard = self._guarded if isinstance(checkpoint, Checkpoint) else _unguarded
        host.seed(SEED)
        self._phase = seen.phase = "forward"
        before, noted = self._counts(), len(self._left)
        start = time.perf_counter()
        with host.deterministic(), host.tracking() if memory else contextlib.nullcontext(_nothing_held) as held_bytes:
            self._held = held_bytes
            try:
                outputs, pullback = host.vjp(flat, *primals)
                host.settle()
                seen.forward = self._since(before)
                middle = self._counts()
                values = [host.numpy(y) for y in outputs]
                seen.value = map_leaves(structure, lambda node: isinstance(node, Place), lambda at: values[at.index])
                seen.held.after_forward = held_bytes()
                self._phase = seen.phase = "backward"
                try:
                    gradients = backward(Pull(host, outputs, pullback, self._guard))
                    host.settle()
                finally:
                    seen.backward = self._since(middle)
                    del pullback
                seen.gradients = map_leaves(gradients, host.is_array, host.numpy)
                del gradients
                del self._left[noted:]  # swallowed, as the end of a replay is; a traceback keeps much alive
                seen.held.after_backward = held_bytes()
                seen.phase = "done"
            except BaseException as error:
                seen.error = error
        self.library_seconds += time.perf_counter() - start
        return seen

    def _counts(self) -> Counts:
        return {p: p.executions for p in self._probes}

    def _since(self, before: Counts) -> Counts:
        return {p: n - before.get(p, 0) for p, n in self._counts().items()}

    def _check_plain(self, plain: Observation, again: Observation) -> None:
        """Demand that the plain run works and repeats."""
        for observation in (plain, again):
            if isinstance(observation.error, MissingFact):
                raise observation.error
            if observation.error is not None:
                text = f"{type(observation.error).__name__}: {observation.error}"
                raise PlainDiffers(f"the plain run raises in {observation.phase}: {text}") from observation.error
        if found := difference([plain.value, plain.gradients], [again.value, again.gradients]):
            found = found.replace("plain", "first", 1).replace("checkpointed", "second")
            raise PlainDiffers(f"two plain runs differ: {found}")

    def _compare(self, plain: Observation, seen: Observation, tolerance: float) -> None:
        for label, expected, observed in (
            ("value", plain.value, seen.value),
            ("gradient", plain.gradients, seen.gradients),
        ):
            if found := difference(expected, observed, label, tolerance):
                self.evidence[-1]["difference"] = found
                raise Wrong(label, found)

    def _note(self, seen: Seen) -> None:
        """Enter a run into the case's evidence."""
        entry: dict[str, Any] = {"replays": seen.replays}
        for name, observation in (("plain", seen.plain), ("checkpointed", seen)):
            entry[name] = {
                "forward": {p.name: n for p, n in observation.forward.items()},
                "backward": {p.name: n for p, n in observation.backward.items()},
            }
            if observation.held != Held():
                entry[name]["held"] = vars(observation.held)
        if seen.error is not None:
            entry["error"] = {"type": type(seen.error).__name__, "phase": seen.phase}
        self.evidence.append(entry)


def _unguarded(call: Callable[..., Any], *args: Any) -> Any:
    return call(*args)


def _nothing_held() -> int:
    return 0


@contextlib.contextmanager
def collected() -> Iterator[None]:
    """Collect garbage at the end, and not before: what dies with a case dies inside the case.

    Without the collector in between, a clause sees whether reference counting alone releases something. What survives
    is set aside, so that the next collection looks at the next case only: a tenth of a second less for a big library.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
