"""What an implementation brings: a host, checkpointers on it, and an adapter that offers both.

*Host*: an array library with its differentiation; it knows nothing of checkpointing.
*Checkpointer*: one way to checkpoint on that host, and what it says it can do.
*Adapter*: one host and one or more named checkpointers, its variants.

An adapter translates; it never judges, retries or repairs.
"""

from __future__ import annotations

import contextlib
import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any
"""An array of the host's library."""

Pullback = Callable[..., Sequence[Array]]
"""`pullback(cotangents, retain)`: gradients of the primals, zeros where one has no influence.

One cotangent per output, None for an output that is not differentiated. `retain` says that it will be called again.
With `pullback(cotangents, retain, inputs)`, gradients of the primals at these positions (CHOSEN_INPUTS).
"""


class Fact(enum.Enum):
    """What a host may have. A clause that needs an absent fact is not applicable, with the fact as the reason."""

    GLOBAL_RANDOM = "a global random generator that can be seeded"
    KEYED_RANDOM = "random operations that take an explicit key"
    IN_PLACE = "operations that change an array in place"
    GRADIENT_FLAGS = "arrays that say whether they need a gradient"
    EAGER = "a function's Python body runs at each execution"
    RETAIN = "a pullback that can be called again"
    SEPARATE_OUTPUTS = "a pullback over some of the outputs only"
    HIGHER_ORDER = "gradients of gradients"
    HELD_BYTES = "a count of the bytes that live arrays hold"
    HELD_IN_BACKWARD = "that count also while backward runs"
    RELEASE = "objects released by reference counting alone"
    TORCH_NAMES = "a module with torch's names"
    THREADS = "several threads that compute at the same time"
    FORWARD_MODE = "derivatives in forward mode"
    BATCHING = "functions mapped over a batch"
    ACCELERATOR = "an accelerator with a random generator of its own"
    SEVERAL_ACCELERATORS = "several accelerators of one type"
    COMPILER = "a compiler of functions"
    PROCESSES = "several processes that communicate"


class Capability(enum.Enum):
    """What a checkpointer may offer. A clause that tests an undeclared one may be refused, never answered wrongly."""

    KEYWORDS = "keyword arguments for the region"
    NESTED_ARGUMENTS = "arrays inside containers among the arguments"
    STRUCTURED_RESULTS = "containers as the region's result"
    CAPTURED_ONLY = "a region none of whose arguments needs a gradient"
    FREE_CAPTURES = "a captured intermediate that is also used outside the region"
    DECORATOR = "a decorator form with options"
    EARLY_STOP = "a replay that ends after the last value that backward needs"
    NO_EARLY_STOP = "a replay to the region's end, on request"
    UNPRESERVED_RANDOM = "a replay that leaves the generator alone, on request"
    DETERMINISM_CHECK = "detection of a replay that saves other values"
    NO_DETERMINISM_CHECK = "a replay whose metadata are not compared, on request"
    PARTIAL_BACKWARD = "backward over disjoint outputs in several calls"
    HIGHER_ORDER = "gradients of gradients through a region"
    GRADIENT_INSIDE = "a gradient taken inside a region"
    POLICY_BY_OP = "operations named whose results are saved"
    POLICY_BY_NAME = "values named that are saved"
    POLICY_FUNCTION = "a function that decides for each execution of an operation"
    OFFLOAD = "policies that keep results in another memory"
    REENTRANT = "a forward that records no graph, and a backward inside backward"
    CONTEXT_FN = "context managers around forward and each replay"
    DEBUG = "operation logs in the error about a replay that differs"
    EARLY_STOP_SETTING = "a context manager that overrides early stop for the calls inside"
    GROUP = "several backward calls that share their replays"
    SEQUENTIAL = "a sequence of functions checkpointed in segments"
    SAVED_HOOKS_OPTION = "saved results that pass through the ambient saved-tensor hooks, on request"
    FORWARD_GRAPH = "a forward that records the graph to which hooks, flags and views belong"
    CHOSEN_INPUTS = "gradients of chosen arrays only"
    DEFAULT_DEVICE = "a replay under the default device that forward had"
    SAME_ARGUMENTS = "a replay that is given the very objects that forward was given"
    HOOKS_ONCE = "hooks that fire once a backward, inside a region and on what it reads"
    FORWARD_MODE = "derivatives in forward mode through a region"
    EXCLUSIVE_RANDOM = "random regions in several threads at once, on request"
    WRAPPER = "modules that are checkpointed whenever they are called"
    WRAPPED_PARTS = "such modules in the place of those parts of a model that a predicate chooses"
    VALUE_CHECK = "comparison of the values in a replay, on request"


class HostError(Exception):
    """A host could not be made or does not work; the message says what was tried and what is there."""


class MissingFact(Exception):
    """A host lacks something that a program needs; the message names it."""


class NotWritten(MissingFact):
    """A part of an adapter that is still to be written: clauses that need it are not applicable, and the run fails."""

    label = "not written yet"

    def __init__(self, part: str) -> None:
        super().__init__(f"{self.label}: {part}")


class Ops:
    """A host's operations under their Array API names; an absent one raises MissingFact with its name."""

    def __init__(self, host: str, table: Mapping[str, Callable[..., Any]]) -> None:
        self._host = host
        self._table = dict(table)

    def has(self, *names: str) -> bool:
        """Whether all of these operations are there."""
        return set(names) <= set(self._table)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self._table[name]
        except KeyError:
            raise MissingFact(f"{self._host} has no operation {name!r}") from None


@dataclass(frozen=True)
class Words:
    """How a stand-alone program says what clauses say; conformance/reproducer/vocabulary.py describes the files.

    files: paths of Python files, of which the text is read; a later one has the last word.
    names: a name in them -> what stands in its place. imports: modules that these texts need.
    """

    files: tuple[str, ...]
    names: Mapping[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()


class Host(ABC):
    """An array library with its differentiation.

    Besides what is abstract here, `facts` says which of the optional parts work; the others are never called.
    """

    #: The library's name and version.
    name: str
    version: str
    facts: frozenset[Fact] = frozenset()
    #: The module with torch's names (TORCH_NAMES); arrays are its tensors.
    torch: Any = None
    #: For stand-alone reproducers: what a checkpointer's words begin with.
    words: Words | None = None
    #: Modules to import before processes are forked (PROCESSES).
    imports: tuple[str, ...] = ()
    #: Array API names; random ones (`dropout(x, p)`, `uniform_like(x)`) draw from the global generator or take `key=`.
    ops: Ops

    @abstractmethod
    def array(self, values: np.ndarray[Any, Any]) -> Array:
        """An array with these values and this dtype; it is differentiable where it is a primal of `vjp`."""

    @abstractmethod
    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy of the values."""

    @abstractmethod
    def is_array(self, value: object) -> bool:
        """Whether a value is one of this host's arrays."""

    @abstractmethod
    def vjp(self, fn: Callable[..., tuple[Array, ...]], *primals: Array) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs of `fn(*primals)` and the pullback to the floating-point primals, which `fn` sees as copies."""

    @abstractmethod
    def ones_like(self, array: Array) -> Array:
        """The cotangent that `run` uses."""

    @abstractmethod
    def probe(self, x: Array, executed: Callable[[], None]) -> Array:
        """A differentiable identity that saves nothing and calls `executed` at each real execution.

        It is an operation of its own to a policy, under the name "probe".
        """

    def prober(self, executed: Callable[[], None]) -> Callable[[Array], Array]:
        """`probe` with `executed` bound, for a host whose compiler needs it so."""
        return lambda x: self.probe(x, executed)

    def restore(self) -> None:
        """Undo what an earlier case's implementation left behind in this process."""

    def settle(self) -> None:
        """Wait for whatever runs asynchronously."""

    def seed(self, seed: int) -> None:
        """Seed the global generator (GLOBAL_RANDOM)."""

    def key(self, seed: int) -> Any:
        """A key for random operations (KEYED_RANDOM)."""
        raise MissingFact(f"{self.name} has no keyed random operations")

    def gradient(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """The gradient of `sum(fn(x))`, itself differentiable (HIGHER_ORDER)."""
        raise MissingFact(f"{self.name} has no gradients of gradients")

    def jvp(self, fn: Callable[[Array], Array], x: Array, tangent: Array) -> tuple[Array, Array]:
        """The value of `fn(x)` and its derivative along the tangent, both cut off from the graph (FORWARD_MODE)."""
        raise MissingFact(f"{self.name} has no derivatives in forward mode")

    def batched(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        """`fn` mapped over the first axis, itself differentiable (BATCHING)."""
        raise MissingFact(f"{self.name} cannot map a function over a batch")

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """`fn`, compiled when it is first called, and differentiable; probes inside still count (COMPILER)."""
        raise MissingFact(f"{self.name} has no compiler")

    def joined(self, rank: int, count: int, folder: str) -> contextlib.AbstractContextManager[None]:
        """This process as the one of that rank among several that find each other in a folder (PROCESSES).

        Waiting for a process that never comes must end in an exception.
        """
        raise MissingFact(f"{self.name} has no processes that communicate")

    def needs_gradient(self, array: Array) -> bool:
        """Whether the array is connected to a primal (GRADIENT_FLAGS)."""
        raise MissingFact(f"{self.name} has no requires-grad flags")

    def stop_gradient(self, array: Array) -> Array:
        """The same values, cut off from the graph."""
        raise MissingFact(f"{self.name} cannot cut an array off from the graph")

    def named(self, array: Array, name: str) -> Array:
        """The same value under a name that a policy can refer to (POLICY_BY_NAME)."""
        return array

    def tracking(self) -> contextlib.AbstractContextManager[Callable[[], int]]:
        """Yields a count of the bytes held by arrays that were made inside and are alive (HELD_BYTES).

        States of random generators don't count.
        """
        raise MissingFact(f"{self.name} cannot count the bytes that it holds")

    def deterministic(self) -> contextlib.AbstractContextManager[None]:
        """The settings under which a repeated run is bit-equal."""
        return contextlib.nullcontext()

    def environment(self) -> dict[str, str]:
        """What a report should say about the library's build; values that differ between runs have no place here."""
        return {}


Region = Callable[..., Any]


@dataclass(frozen=True)
class Checkpointer:
    """One way to checkpoint.

    checkpoint: `checkpoint(region, args, kwargs, options)` calls the region checkpointed, options by the names below.
    decorator: `decorator(options)` returns a decorator; only with Capability.DECORATOR.
    sequential: `sequential(functions, segments, inputs, options)` runs a sequence in segments; only with
        Capability.SEQUENTIAL.
    group: a context within which several backward calls share their replays; only with Capability.GROUP.
    wrapper: `wrapper(module, options)` returns a module that is checkpointed whenever it is called; only with
        Capability.WRAPPER.
    wrap_parts: `wrap_parts(model, is_wanted, options)` does that to the parts of a model that a predicate chooses;
        only with Capability.WRAPPED_PARTS.
    api: the module with torch.utils.checkpoint's names, where the host has torch's names.
    capabilities: what it offers beyond the core.
    words: for stand-alone reproducers of what fails; None: none are written.

    Options, each present only if a clause asks for it; what cannot be translated is refused with an exception:
    `early_stop` (bool), `determinism_check` ("default" or "none"),
    `preserve_rng_state` (bool, or "exclusive": one region of this kind at a time, EXCLUSIVE_RANDOM),
    `save` (names of operations), `save_names` (names given by `Host.named`),
    `policy` (a function from an operation's name, None for unknown ones, to whether its result is saved: True, False,
    or with Capability.OFFLOAD "MUST_CPU_OFFLOAD" or "PREFER_CPU_OFFLOAD").
    Clauses of profile *torch* also use torch's own: `context_fn`, `debug`, `respect_saved_tensors_hooks`.
    """

    checkpoint: Callable[[Region, tuple[Any, ...], dict[str, Any], dict[str, Any]], Any]
    capabilities: frozenset[Capability] = frozenset()
    decorator: Callable[[dict[str, Any]], Callable[[Region], Region]] | None = None
    sequential: Callable[[Iterable[Region], int, tuple[Any, ...], dict[str, Any]], Any] | None = None
    group: Callable[[], contextlib.AbstractContextManager[Any]] | None = None
    wrapper: Callable[[Any, dict[str, Any]], Any] | None = None
    wrap_parts: Callable[[Any, Callable[[Any], bool], dict[str, Any]], None] | None = None
    api: Any = None
    words: Words | None = None


class UnknownOption(TypeError):
    """A checkpointer was given an option that it does not have."""


def only(options: Mapping[str, Any], *known: str) -> None:
    """Raise UnknownOption if there is an option outside `known`."""
    if unknown := sorted(set(options) - set(known)):
        raise UnknownOption(f"no option {', '.join(unknown)}; there are: {', '.join(known) or 'none'}")


@dataclass(frozen=True)
class Adapter:
    """What `--adapter` names.

    name: of the implementation, for reports and baselines.
    version: of the implementation.
    host: makes the host for a device ("cpu", "cuda"); raises HostError if that device isn't there.
    variants: name -> makes the checkpointer on that host.
    """

    name: str
    version: str
    host: Callable[[str], Host]
    variants: Mapping[str, Callable[[Any], Checkpointer]] = field(default_factory=dict)
