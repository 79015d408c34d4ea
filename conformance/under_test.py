"""What a clause holds in its hand: the implementation under test.

`run` executes a program plain, plain again, and checkpointed, always from the same seed; it compares values and
gradients and counts probes by phase. Comparing values is done here alone and raises `Wrong`; what a clause asserts
itself is about bounds, counts and causes.

A pass needs evidence: every run must show a replay during backward, unless it says `replays=0`, and then another run
of the same case must show one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ckptspec.conformance.backend import Array, Checkpointer, Host, MissingFact, Pullback, Region
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


class Probe:
    """A differentiable identity that counts its real executions."""

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self.name = name
        self.executions = 0

    def __call__(self, x: Array) -> Array:
        return self._host.probe(x, self._executed)

    def __repr__(self) -> str:
        return self.name

    def _executed(self) -> None:
        self.executions += 1


Counts = dict[Probe, int]


@dataclass
class Held:
    """Bytes that live arrays hold which were made in the run: outputs and copies of the primals included."""

    after_forward: int = 0
    after_backward: int = 0


@dataclass
class Observation:
    """One execution of a program. Values and gradients are NumPy arrays in the structure that the program returned."""

    value: Any = None
    gradients: Any = None
    forward: Counts = field(default_factory=dict)
    backward: Counts = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    error: BaseException | None = None
    phase: str = "forward"


@dataclass
class Seen(Observation):
    """The checkpointed execution, with the plain one beside it."""

    plain: Observation = field(default_factory=Observation)

    @property
    def replays(self) -> int:
        """How often backward executed the most executed probe more than the plain backward did."""
        return max((n - self.plain.backward.get(p, 0) for p, n in self.backward.items()), default=0)


class Plain:
    """The `checkpoint` of a plain run: a call, whatever the options."""

    def __call__(self, region: Region, *args: Any, **kwargs: Any) -> Any:
        return region(*args, **kwargs)

    def using(self, **options: Any) -> Plain:
        return self

    def decorator(self, **options: Any) -> Callable[[Region], Region]:
        return lambda region: region


class Checkpoint:
    """The `checkpoint` that a program is given: the checkpointer under test, with options bound by `using`."""

    def __init__(self, checkpointer: Checkpointer, guarded: Callable[..., Any], options: dict[str, Any]) -> None:
        self._checkpointer = checkpointer
        self._guarded = guarded
        self._options = options

    def __call__(self, region: Region, *args: Any, **kwargs: Any) -> Any:
        return self._guarded(self._checkpointer.checkpoint, region, args, kwargs, self._options)

    def using(self, **options: Any) -> Checkpoint:
        return Checkpoint(self._checkpointer, self._guarded, self._options | options)

    def decorator(self, **options: Any) -> Callable[[Region], Region]:
        """The decorator form, with these options."""
        decorator = self._checkpointer.decorator or _no_decorator
        decorate: Callable[[Region], Region] = self._guarded(decorator, self._options | options)
        return lambda region: self._watched(self._guarded(decorate, region))

    def _watched(self, decorated: Region) -> Region:
        """The decorated function with its own name and docstring; what leaves it is noted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._guarded(lambda: decorated(*args, **kwargs))

        return functools.update_wrapper(call, decorated, ("__name__", "__doc__"), ())


class _Decorated:
    """A decorated function that behaves as the implementation made it, save that its exceptions are noted."""

    def __init__(self, decorated: Any, guarded: Callable[..., Any]) -> None:
        self.__doc__ = getattr(decorated, "__doc__", None)
        self._decorated, self._guarded = decorated, guarded

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._guarded(lambda: self._decorated(*args, **kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> _Decorated:
        bind = getattr(type(self._decorated), "__get__", None)
        return self if bind is None else _Decorated(bind(self._decorated, instance, owner), self._guarded)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decorated, name)


class _Api:
    """A checkpointer's module: functions are guarded, classes are handed out as they are."""

    def __init__(self, module: Any, guarded: Callable[..., Any]) -> None:
        self._module, self._guarded = module, guarded

    def __getattr__(self, name: str) -> Any:
        found = self._guarded(getattr, self._module, name)
        if isinstance(found, type) or not callable(found):
            return found
        return lambda *args, **kwargs: self._guarded(lambda: found(*args, **kwargs))


def _no_decorator(options: dict[str, Any]) -> Any:
    raise TypeError("this checkpointer has no decorator form")


class Pull:
    """Backward: `pull()` gives the gradients of the primals, for a cotangent of ones.

    `outputs` chooses outputs by position, in the order in which the program's result holds them; `retain` says that
    there will be another call.
    """

    def __init__(self, host: Host, outputs: Sequence[Array], pullback: Pullback, guarded: Callable[..., Any]) -> None:
        self._host, self._outputs, self._pullback, self._guarded = host, outputs, pullback, guarded

    def __call__(self, *, outputs: Iterable[int] | None = None, retain: bool = False) -> tuple[Array, ...]:
        chosen = range(len(self._outputs)) if outputs is None else set(outputs)
        ones = [
            self._host.ones_like(y) if i in chosen and _is_floating(self._host, y) else None
            for i, y in enumerate(self._outputs)
        ]
        gradients = tuple(self._guarded(self._pullback, ones, retain))
        self._host.settle()
        return gradients


def _is_floating(host: Host, array: Array) -> bool:
    return np.issubdtype(host.numpy(array).dtype, np.inexact)


@dataclass(frozen=True)
class _Place:
    """Where an array was in a structure."""

    index: int


def _flatten(structure: Any, is_array: Callable[[object], bool]) -> tuple[Any, list[Array]]:
    """The structure with places for its arrays, and the arrays."""
    arrays: list[Array] = []

    def place(array: Array) -> _Place:
        arrays.append(array)
        return _Place(len(arrays) - 1)

    return _map(structure, is_array, place), arrays


def _map(structure: Any, is_leaf: Callable[[object], bool], change: Callable[[Any], Any]) -> Any:
    if is_leaf(structure):
        return change(structure)
    if isinstance(structure, dict):
        return {k: _map(v, is_leaf, change) for k, v in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)([_map(v, is_leaf, change) for v in structure])
    return structure


def difference(expected: Any, observed: Any, where: str = "") -> str | None:
    """How two structures of NumPy arrays differ, or None if they are equal to the bit."""
    if isinstance(expected, np.ndarray) and isinstance(observed, np.ndarray):
        if expected.dtype != observed.dtype or expected.shape != observed.shape:
            return f"{where}: {expected.dtype}{expected.shape} plain, {observed.dtype}{observed.shape} checkpointed"
        if np.array_equal(expected, observed, equal_nan=np.issubdtype(expected.dtype, np.inexact)):
            return None
        return f"{where}: {_excerpt(expected)} plain, {_excerpt(observed)} checkpointed"
    if type(expected) is not type(observed):
        return f"{where}: {type(expected).__name__} plain, {type(observed).__name__} checkpointed"
    if isinstance(expected, dict | list | tuple):
        if len(expected) != len(observed) or (isinstance(expected, dict) and list(expected) != list(observed)):
            return f"{where}: structures differ"
        keys: Iterable[Any] = expected if isinstance(expected, dict) else range(len(expected))
        return next((d for k in keys if (d := difference(expected[k], observed[k], f"{where}[{k!r}]"))), None)
    return None if expected == observed else f"{where}: {expected!r} plain, {observed!r} checkpointed"


def _excerpt(array: np.ndarray[Any, Any]) -> str:
    first = ", ".join(f"{v:.6g}" for v in array.ravel()[:4])
    return f"[{first}{', …' if array.size > 4 else ''}]"


class UnderTest:
    """One case's view of the implementation: the host's operations, arrays, probes and `run`."""

    def __init__(self, host: Host, checkpointer: Checkpointer) -> None:
        self._host = host
        self._checkpointer = checkpointer
        self._probes: list[Probe] = []
        self._left: list[tuple[BaseException, str]] = []
        self._phase = "forward"
        self._guard: Callable[..., Any] = _unguarded
        self.evidence: list[dict[str, Any]] = []
        self.library_seconds = 0.0
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
        return _Api(self._checkpointer.api, self._guarded)

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

    def needs_gradient(self, array: Array) -> bool:
        return self._host.needs_gradient(array)

    def stop_gradient(self, array: Array) -> Array:
        return self._host.stop_gradient(array)

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy of the values, for a clause's own assertion."""
        return self._host.numpy(array)

    def watch(self, thing: object) -> Callable[[], bool]:
        """A function that says whether the object is still alive."""
        reference = weakref.ref(thing)
        return lambda: reference() is not None

    # -- running

    def run(
        self,
        program: Program,
        *primals: Array,
        replays: int = 1,
        backward: Callable[[Pull], Any] | None = None,
        memory: bool = False,
    ) -> Seen:
        """Execute the program plain, plain again and checkpointed, and demand equal values and gradients.

        replays: the least number of executions on behalf of backward that a pass needs.
        backward: what is done with the pullback; what it returns is compared. Default: `pull()`.
        memory: also count held bytes.
        Raises what left the checkpointer or a pullback, Wrong, NoReplay, or PlainDiffers.
        """
        seen = self.attempt(program, *primals, replays=replays, backward=backward, memory=memory)
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
    ) -> Seen:
        """`run`, but an exception of the checkpointed execution is returned as `error`, with the phase it came in."""
        go = backward or (lambda pull: pull())
        plain, again = (self._observe(Observation(), program, Plain(), primals, go, memory) for _ in range(2))
        self._check_plain(plain, again)
        seen = Seen(plain=plain)
        self._observe(seen, program, Checkpoint(self._checkpointer, self._guarded, {}), primals, go, memory)
        self._note(seen)
        if seen.error is None:
            self._compare(plain, seen)
            if seen.replays < replays:
                raise NoReplay(f"{NoReplay.label}: {seen.replays} executions, at least {replays} needed")
        return seen

    def finish(self) -> None:
        """Demand that the case as a whole has seen a replay."""
        if not any(run["replays"] > 0 for run in self.evidence):
            raise NoReplay(f"{NoReplay.label}: no run of this case replayed anything")

    def classify(self, error: BaseException | None) -> Observed:
        """What a case's outcome is an observation of."""
        if error is None:
            return Observed.HOLDS
        if any(error is left for left, _ in self._left):
            return Observed.RAISED
        if isinstance(error, Wrong):
            return Observed.WRONG
        if isinstance(error, MissingFact | PlainDiffers):
            return Observed.PLAIN
        return Observed.BOUND if isinstance(error, AssertionError) else Observed.OTHER

    def phase_of(self, error: BaseException | None) -> str | None:
        """The phase in which an exception left the checkpointer or a pullback."""
        return next((phase for left, phase in self._left if left is error), None)

    # -- how

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call, and note an exception that comes out, with the phase."""
        try:
            return call(*args)
        except BaseException as error:
            if not any(error is left for left, _ in self._left):
                self._left.append((error, self._phase))
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
            structure, arrays = _flatten(program(checkpoint, *copies), host.is_array)
            return tuple(arrays)

        # A plain run notes nothing: what it raises is the host's or the program's own.
        self._guard = self._guarded if isinstance(checkpoint, Checkpoint) else _unguarded
        host.seed(SEED)
        self._phase = seen.phase = "forward"
        before = self._counts()
        start = time.perf_counter()
        with host.deterministic(), host.tracking() if memory else contextlib.nullcontext(_nothing_held) as held_bytes:
            try:
                outputs, pullback = host.vjp(flat, *primals)
                host.settle()
                seen.forward = self._since(before)
                middle = self._counts()
                values = [host.numpy(y) for y in outputs]
                seen.value = _map(structure, lambda node: isinstance(node, _Place), lambda at: values[at.index])
                seen.held.after_forward = held_bytes()
                self._phase = seen.phase = "backward"
                try:
                    gradients = backward(Pull(host, outputs, pullback, self._guard))
                    host.settle()
                finally:
                    seen.backward = self._since(middle)
                    del pullback
                seen.gradients = _map(gradients, host.is_array, host.numpy)
                del gradients
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

    def _compare(self, plain: Observation, seen: Observation) -> None:
        for label, expected, observed in (
            ("value", plain.value, seen.value),
            ("gradient", plain.gradients, seen.gradients),
        ):
            if found := difference(expected, observed, label):
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
    """Collect garbage on the way in and out, and not between: what dies with a case dies inside the case.

    Without the collector in between, a clause sees whether reference counting alone releases something.
    """
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()
