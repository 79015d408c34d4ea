"""A host in one file: a NumPy tape with its own checkpoint. It carries the controls and shows how a host is written.

From top to bottom: the tape (arrays, operations, backward), its checkpoint, and what the suite needs of both.

    pytest conformance --adapter=tests/tape.py:adapter
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, Fact, Host, HostError, Ops, Pullback

Values = np.ndarray[Any, Any]

# -- The tape ----------------------------------------------------------------------------------------------------------


@dataclass
class Tape:
    """What is going on: whether operations are recorded, in which regions, and for which backward."""

    recording: bool = True
    regions: list[Forward | Replay] = field(default_factory=list)
    backwards: list[Backward] = field(default_factory=list)
    generator: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    #: Each is shown the values of every array that is made.
    observers: list[Callable[[Values], None]] = field(default_factory=list)

    @contextlib.contextmanager
    def switched(self, **changes: Any) -> Iterator[None]:
        before = {name: getattr(self, name) for name in changes}
        vars(self).update(changes)
        try:
            yield
        finally:
            vars(self).update(before)


tape = Tape()
_numbers = itertools.count()


class Variable:
    """An array: its values, and the node that they came from; None if no gradient flows to it."""

    def __init__(self, values: Any, node: Node | None = None) -> None:
        self.values: Values = np.asarray(values)
        self.node = node
        for shown in tape.observers:
            shown(self.values)

    def __getitem__(self, index: Any) -> Variable:
        return _index(self, index=index)


class Like(NamedTuple):
    """What a gradient must look like."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(eq=False)
class Node:
    """How an array was made. Parents have lower numbers, so that their order is an order of backward.

    saved: input name -> what a derivative needs of it; None once a backward has freed it.
    like: for each input, its shape and dtype. A node without an operation is a leaf.
    """

    operation: Operation | None = None
    parents: dict[int, Node] = field(default_factory=dict)
    saved: dict[str, Any] | None = field(default_factory=dict)
    like: dict[int, Like] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    number: int = field(default_factory=lambda: next(_numbers))

    def pull(self, gradient: Variable, needed: set[Node]) -> Iterator[tuple[Node, Variable]]:
        """The gradients of those parents that are needed."""
        if self.operation is None:
            return
        wanted = [i for i, parent in self.parents.items() if parent in needed]
        names = {name for i in wanted for name in self.operation.needs[i] if name in "xyz"}
        if self.saved is None and names:
            raise RuntimeError("the values that backward needs were freed by an earlier backward")
        found: dict[str, Any] = {n: v.unpack() if isinstance(v := (self.saved or {})[n], Saved) else v for n in names}
        for i in wanted:
            known = found | self.settings | {"like": self.like[i]}
            arguments = {name: known[name] for name in self.operation.needs[i]}
            yield self.parents[i], _fitted(self.operation.derivatives[i](gradient, **arguments), self.like[i])


class Saved:
    """An input that a derivative needs: its values, or the slot where a replay puts them, and its node."""

    def __init__(self, x: Variable) -> None:
        self.node = x.node
        self.packed: Values | Slot = tape.regions[-1].pack(x.values) if tape.regions else x.values

    def unpack(self) -> Variable:
        return Variable(self.packed.take() if isinstance(self.packed, Slot) else self.packed, self.node)


class Operation:
    """A kernel over NumPy arrays and its derivatives, one an input.

    A derivative's parameters say what it needs: the gradient of the result, then inputs by name (x, y, z), settings by
    name, and `like`, which has the shape and dtype of the input. Derivatives are made of operations, so that they have
    derivatives. Inputs are saved before the kernel runs, results never: a graph doesn't refer to itself.
    """

    def __init__(self, name: str, kernel: Callable[..., Any], *derivatives: Callable[..., Variable]) -> None:
        self.name, self.kernel, self.derivatives = name, kernel, derivatives
        self.needs = [tuple(inspect.signature(d).parameters)[1:] for d in derivatives]

    def __call__(self, *inputs: Any, **settings: Any) -> Variable:
        node = self._node(inputs, settings) if tape.recording else None
        found = [region.recalled(self.name) for region in tape.regions]
        values = next((v for v in found if v is not None), None)
        if values is None:
            values = np.asarray(self.kernel(*map(_values, inputs), **settings))
        for region in tape.regions:
            region.executed(self.name, inputs, values)
        return Variable(values, node if _is_floating(values) else None)

    def _node(self, inputs: tuple[Any, ...], settings: dict[str, Any]) -> Node | None:
        """The node of a result, with what its derivatives need; None if no gradient flows."""
        parents = {
            i: x.node
            for i, x in enumerate(inputs[: len(self.derivatives)])
            if isinstance(x, Variable) and x.node is not None
        }
        if not parents:
            return None
        needed = {name for i in parents for name in self.needs[i]}
        named = [(name, x) for name, x in zip("xyz", inputs, strict=False) if name in needed]
        saved = {name: Saved(x) if isinstance(x, Variable) else x for name, x in named}
        like = {i: Like(inputs[i].values.shape, inputs[i].values.dtype) for i in parents}
        return Node(self, parents, saved, like, settings)


def _values(x: Any) -> Any:
    return x.values if isinstance(x, Variable) else x


def _is_floating(values: Values) -> bool:
    return values.dtype.kind in "fc"


def _fitted(gradient: Variable, like: Like) -> Variable:
    """A gradient in its input's dtype, summed over the axes along which the input was stretched."""
    if gradient.values.dtype != like.dtype:
        gradient = _astype(gradient, dtype=like.dtype)
    shape = gradient.values.shape
    if shape == like.shape:
        return gradient
    extra = len(shape) - len(like.shape)
    stretched = [extra + i for i, n in enumerate(like.shape) if n == 1 and shape[extra + i] != 1]
    return _reshape(_sum(gradient, axis=(*range(extra), *stretched)), shape=like.shape)


add: Operation = Operation("add", np.add, lambda g: g, lambda g: g)
subtract: Operation = Operation("subtract", np.subtract, lambda g: g, lambda g: negative(g))
multiply: Operation = Operation("multiply", np.multiply, lambda g, y: multiply(g, y), lambda g, x: multiply(g, x))
divide: Operation = Operation(
    "divide", np.divide, lambda g, y: divide(g, y), lambda g, x, y: negative(divide(multiply(g, x), square(y)))
)
negative: Operation = Operation("negative", np.negative, lambda g: negative(g))
square: Operation = Operation("square", np.square, lambda g, x: multiply(g, multiply(x, 2.0)))
sqrt: Operation = Operation("sqrt", np.sqrt, lambda g, x: divide(g, multiply(sqrt(x), 2.0)))
exp: Operation = Operation("exp", np.exp, lambda g, x: multiply(g, exp(x)))
log: Operation = Operation("log", np.log, lambda g, x: divide(g, x))
sin: Operation = Operation("sin", np.sin, lambda g, x: multiply(g, cos(x)))
cos: Operation = Operation("cos", np.cos, lambda g, x: negative(multiply(g, sin(x))))
tanh: Operation = Operation("tanh", np.tanh, lambda g, x: multiply(g, subtract(1.0, square(tanh(x)))))
sign: Operation = Operation("sign", np.sign)
less: Operation = Operation("less", np.less)
absolute: Operation = Operation("abs", np.abs, lambda g, x: multiply(g, sign(x)))
where: Operation = Operation(
    "where", np.where, lambda g: g, lambda g, x: where(x, g, 0.0), lambda g, x: where(x, 0.0, g)
)  # of the condition, an array of booleans, no gradient is ever asked
matmul: Operation = Operation(
    "matmul", np.matmul, lambda g, y: matmul(g, _turned(y)), lambda g, x: matmul(_turned(x), g)
)
_turned: Operation = Operation("matrix_transpose", lambda x: np.swapaxes(x, -1, -2), lambda g: _turned(g))
_permute: Operation = Operation(
    "permute_dims", lambda x, axes: np.transpose(x, axes), lambda g, axes: _permute(g, axes=tuple(np.argsort(axes)))
)
_reshape: Operation = Operation(
    "reshape", lambda x, shape: np.reshape(x, shape), lambda g, like: _reshape(g, shape=like.shape)
)
_astype: Operation = Operation("astype", lambda x, dtype: x.astype(dtype), lambda g, like: _astype(g, dtype=like.dtype))
_sum: Operation = Operation(
    "sum", lambda x, axis: np.sum(x, axis=axis), lambda g, like, axis: _stretch(g, shape=like.shape, axis=axis)
)
_stretch: Operation = Operation(
    "stretch",
    lambda x, shape, axis: np.broadcast_to(np.expand_dims(x, axis), shape).copy(),
    lambda g, axis: _sum(g, axis=axis),
)
_concat: Operation = Operation(
    "concat",
    lambda x, y: np.concatenate([x, y]),
    lambda g, like: _rows(g, start=0, stop=like.shape[0]),
    lambda g, like: _rows(g, start=len(g.values) - like.shape[0], stop=len(g.values)),
)
_rows: Operation = Operation(
    "rows",
    lambda x, start, stop: x[start:stop].copy(),
    lambda g, start, stop, like: _pad(g, before=start, after=like.shape[0] - stop),
)
_pad: Operation = Operation(
    "pad",
    lambda x, before, after: np.pad(x, [(before, after)] + [(0, 0)] * (x.ndim - 1)),
    lambda g, before, like: _rows(g, start=before, stop=before + like.shape[0]),
)
_index: Operation = Operation(
    "index", lambda x, index: x[index].copy(), lambda g, index, like: _put(g, index=index, like=like)
)
_put: Operation = Operation(
    "put", lambda x, index, like: _in_zeros(x, index, like), lambda g, index: _index(g, index=index)
)
_probe: Operation = Operation("probe", lambda x, executed: (executed(), x.copy())[1], lambda g: g)
zeros_like: Operation = Operation("zeros_like", np.zeros_like)
ones_like: Operation = Operation("ones_like", np.ones_like)
uniform_like: Operation = Operation("uniform_like", lambda x, key=None: generator(key).random(x.shape).astype(x.dtype))
_is_dropped: Operation = Operation("is_dropped", lambda x, p, key=None: generator(key).random(x.shape) < p)


def _in_zeros(x: Values, index: Any, like: Like) -> Values:
    zeros = np.zeros(*like)
    zeros[index] = x
    return zeros


def generator(key: int | None) -> np.random.Generator:
    """What a random operation draws from: one that its key makes, or the one that all share."""
    return tape.generator if key is None else np.random.default_rng(key)


def sum_(x: Variable, axis: int | tuple[int, ...] | None = None) -> Variable:
    axes = range(x.values.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    return _sum(x, axis=tuple(a % x.values.ndim for a in axes))


def mean(x: Variable, axis: int | tuple[int, ...] | None = None) -> Variable:
    total = sum_(x, axis)
    return divide(total, float(x.values.size // max(total.values.size, 1)))


def relu(x: Variable) -> Variable:
    return where(less(x, 0.0), 0.0, x)


def sigmoid(x: Variable) -> Variable:
    return divide(1.0, add(1.0, exp(negative(x))))


def dropout(x: Variable, p: float, key: int | None = None) -> Variable:
    return where(_is_dropped(x, p, key=key), 0.0, divide(x, 1.0 - p))


def custom(
    forward: Callable[[Variable], Variable], backward: Callable[[Variable, Variable], Variable]
) -> Callable[[Variable], Variable]:
    """A function with a backward of its own, which is given the gradient and the input."""

    def kernel(x: Values) -> Values:
        with tape.switched(recording=False, regions=[]):
            return forward(Variable(x)).values

    return Operation("custom", kernel, lambda g, x: backward(g, x))


def noisy_relu(x: Variable) -> Variable:
    """Relu with a random slope below zero."""
    return where(less(x, 0.0), multiply(x, uniform_like(x)), x)


@dataclass(eq=False)
class Backward:
    """One backward. What the replays on its behalf have found goes when it ends."""

    found: dict[Frame, dict[int, Values]] = field(default_factory=dict)


def backward(
    outputs: Sequence[Variable],
    cotangents: Sequence[Variable | None],
    wanted: Sequence[Node],
    *,
    retain: bool = False,
    record: bool = False,
) -> list[Variable | None]:
    """The gradient that arrives at each of the wanted nodes; None where none does.

    retain: keep what is saved. record: record the backward itself, for gradients of gradients.
    """
    gradients: dict[Node, Variable] = {}

    def arrived(node: Node, gradient: Variable) -> None:
        gradients[node] = add(gradients[node], gradient) if node in gradients else gradient

    with tape.switched(recording=record, backwards=[*tape.backwards, Backward()]):
        for output, cotangent in zip(outputs, cotangents, strict=True):
            if output.node is not None and cotangent is not None:
                arrived(output.node, cotangent)
        order = _reachable(gradients)
        needed = set(wanted)
        for node in order:
            if not needed.isdisjoint(node.parents.values()):
                needed.add(node)
        for node in reversed(order):
            if node in needed and node in gradients:
                gradient = gradients[node] if node in wanted else gradients.pop(node)
                for parent, of_parent in node.pull(gradient, needed):
                    arrived(parent, of_parent)
                if not retain:
                    node.saved = None
    return [gradients.get(node) for node in wanted]


def _reachable(start: Iterable[Node]) -> list[Node]:
    """The nodes from which something was made, parents first."""
    found, waiting = set(start), list(start)
    while waiting:
        new = [parent for parent in waiting.pop().parents.values() if parent not in found]
        found.update(new)
        waiting += new
    return sorted(found, key=lambda node: node.number)


# -- Its checkpoint ----------------------------------------------------------------------------------------------------


class CheckpointError(RuntimeError):
    """A replay didn't save what the forward had saved."""


class Stop(BaseException):
    """Ends a replay that has found everything; no Exception, so that a region doesn't handle it."""


NAMED = "named "


@dataclass(frozen=True)
class Options:
    early_stop: bool = True
    preserve_rng_state: bool = True
    determinism_check: str = "default"
    save: Sequence[str] = ()
    save_names: Sequence[str] = ()
    policy: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.preserve_rng_state, bool):
            raise ValueError(f"preserve_rng_state is {self.preserve_rng_state!r}, neither True nor False")
        if self.determinism_check not in ("default", "none"):
            raise ValueError(f"determinism_check is {self.determinism_check!r}, neither 'default' nor 'none'")

    def keeps(self, name: str) -> bool:
        """Whether the result of an operation is kept for replays."""
        is_named = name.startswith(NAMED) and name.removeprefix(NAMED) in self.save_names
        return is_named or name in self.save or (self.policy is not None and self.policy(name))


def checkpoint(region: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    """Call the region; of what it saves for backward, remember only how to find it again."""
    if not tape.recording:
        return region(*args, **kwargs)
    frame = Frame(region, args, kwargs, options)
    forward = Forward(frame)
    with tape.switched(regions=[*tape.regions, forward]):
        result = region(*args, **kwargs)
    if options.save_names:
        forward.leave_out()
    frame.is_complete = True
    return result


class Slot:
    """Stands in the graph for a saved value. The graph owns it, and it owns the frame."""

    def __init__(self, frame: Frame, index: int) -> None:
        self.frame, self.index = frame, index

    def take(self) -> Values:
        """The value; the first slot of a frame that a backward takes from makes it replay."""
        found = tape.backwards[-1].found.setdefault(self.frame, {})
        if self.index not in found:
            found.update(self.frame.replay())
        return found.pop(self.index)


class Frame:
    """What a region remembers: how it was called, and of the values that it saved only their shapes.

    The arguments are saved like a derivative's inputs: an enclosing region replays them.
    """

    def __init__(
        self, region: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options
    ) -> None:
        self.region, self.options = region, options
        self.arguments = _map((args, kwargs), Variable, Saved)
        self.state = tape.generator.bit_generator.state
        self.slots: list[weakref.ref[Slot]] = []
        self.shapes: list[tuple[Any, ...]] = []
        self.operations: list[str] = []
        self.kept: dict[int, tuple[Values, Any]] = {}
        self.is_complete = False

    def replay(self) -> dict[int, Values]:
        """Run the region again. Returns the saved values that the graph still has a slot for."""
        args, kwargs = _map(self.arguments, Saved, Saved.unpack)
        replay, outside = Replay(self), tape.generator.bit_generator.state
        if self.options.preserve_rng_state:
            tape.generator.bit_generator.state = self.state
        try:
            with tape.switched(recording=True, regions=[replay]), contextlib.suppress(Stop):
                self.region(*args, **kwargs)
        finally:
            if self.options.preserve_rng_state:
                tape.generator.bit_generator.state = outside
        self._check(replay.shapes, replay.operations)
        return replay.found

    def _check(self, shapes: list[tuple[Any, ...]], operations: list[str]) -> None:
        if self.kept and operations != self.operations[: len(operations)]:
            raise CheckpointError("kept results belong to operations that the replay didn't execute in the same order")
        saved, again = len(self.shapes), len(shapes)
        if again < saved or (again > saved and self.is_complete and not self.options.early_stop):
            raise CheckpointError(f"the region saved {saved} values in forward and {again} in its replay")
        if self.options.determinism_check == "default" and shapes[:saved] != self.shapes:
            i = next(i for i in range(saved) if shapes[i] != self.shapes[i])
            raise CheckpointError(f"saved value {i} was {self.shapes[i]} in forward and is {shapes[i]} in the replay")


class Forward:
    """A region that runs for the first time.

    steps: of each operation, the positions of those that made its inputs, its result and the generator's state then.
    """

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.steps: list[tuple[list[int], Values, Any]] = []
        self.makers: dict[int, int] = {}
        self.saved: set[int] = set()

    def pack(self, values: Values) -> Slot:
        if id(values) in self.makers:
            self.saved.add(self.makers[id(values)])
        slot = Slot(self.frame, len(self.frame.slots))
        self.frame.slots.append(weakref.ref(slot))
        self.frame.shapes.append((values.shape, values.dtype))
        return slot

    def recalled(self, name: str) -> Values | None:
        return None

    def executed(self, name: str, inputs: tuple[Any, ...], values: Values) -> None:
        if self.frame.options.keeps(name):
            self.frame.kept[len(self.frame.operations)] = values, tape.generator.bit_generator.state
        if self.frame.options.save_names:
            made = [self.makers[id(_values(x))] for x in inputs if id(_values(x)) in self.makers]
            self.makers[id(values)] = len(self.steps)
            self.steps.append((made, values, tape.generator.bit_generator.state))
        self.frame.operations.append(name)

    def leave_out(self) -> None:
        """Spare replays the operations that nothing needs but values which are kept: give them zeros for a result."""
        kept, needed = self.frame.kept, set(self.saved)
        for position in reversed(range(len(self.steps))):
            if position in needed and position not in kept:
                needed.update(self.steps[position][0])
        for position, (_, values, state) in enumerate(self.steps):
            if position not in needed and position not in kept:
                kept[position] = np.broadcast_to(np.zeros((), values.dtype), values.shape), state


class Replay:
    """A region that runs again. Enclosing regions don't see it: their own replays may do without it."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.operations: list[str] = []
        self.shapes: list[tuple[Any, ...]] = []
        self.found: dict[int, Values] = {}

    def pack(self, values: Values) -> Values:
        i, slots = len(self.shapes), self.frame.slots
        self.shapes.append((values.shape, values.dtype))
        if i < len(slots) and slots[i]() is not None:
            self.found[i] = values
        if self.frame.options.early_stop and i + 1 >= len(slots):
            raise Stop
        return values

    def recalled(self, name: str) -> Values | None:
        """The result of an operation that was kept; the generator then stands where the operation had left it."""
        values, state = self.frame.kept.get(len(self.operations), (None, None))
        if state is not None and self.frame.options.preserve_rng_state:
            tape.generator.bit_generator.state = state
        return values

    def executed(self, name: str, inputs: tuple[Any, ...], values: Values) -> None:
        self.operations.append(name)


def _map(structure: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    if isinstance(structure, kind):
        return change(structure)
    if isinstance(structure, dict):
        return {k: _map(v, kind, change) for k, v in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)([_map(v, kind, change) for v in structure])
    return structure


# -- What the suite needs of it ----------------------------------------------------------------------------------------


OPERATIONS: dict[str, Callable[..., Variable]] = {
    operation.name: operation
    for operation in (
        add, subtract, multiply, divide, negative, square, sqrt, exp, log, sin, cos, tanh, absolute, where, matmul,
        less, zeros_like, ones_like, uniform_like,
    )
} | {
    "sum": sum_, "mean": mean, "relu": relu, "sigmoid": sigmoid, "dropout": dropout, "noisy_relu": noisy_relu,
    "concat": lambda arrays: functools.reduce(_concat, arrays),
    "permute_dims": lambda x, axes: _permute(x, axes=tuple(axes)),
    "reshape": lambda x, shape: _reshape(x, shape=tuple(shape)),
    "expand_dims": lambda x, axis: _reshape(x, shape=np.expand_dims(x.values, axis).shape),
    "astype": lambda x, dtype: _astype(x, dtype=np.dtype(dtype)),
    "broadcast_to": lambda x, shape: add(x, Variable(np.zeros(shape, x.values.dtype))),
    "stop_gradient": lambda x: Variable(x.values),
    "no_grad": lambda: tape.switched(recording=False),
    "custom": custom,
}  # fmt: skip


class TapeHost(Host):
    """The tape, knowing nothing of its checkpoint."""

    name = "tape"
    version = np.__version__
    facts = frozenset(
        {
            Fact.GLOBAL_RANDOM,
            Fact.KEYED_RANDOM,
            Fact.GRADIENT_FLAGS,
            Fact.EAGER,
            Fact.RETAIN,
            Fact.SEPARATE_OUTPUTS,
            Fact.HIGHER_ORDER,
            Fact.HELD_BYTES,
            Fact.RELEASE,
        }
    )
    ops = Ops("tape", OPERATIONS)

    def __init__(self, device: str = "cpu") -> None:
        if device != "cpu":
            raise HostError(f"the tape has no device {device!r}; there is: cpu")

    def array(self, values: Values) -> Variable:
        return Variable(values.copy())

    def numpy(self, array: Variable) -> Values:
        return array.values.copy()

    def is_array(self, value: object) -> bool:
        return isinstance(value, Variable)

    def ones_like(self, array: Variable) -> Variable:
        return Variable(np.ones_like(array.values))

    def probe(self, x: Variable, executed: Callable[[], None]) -> Variable:
        return _probe(x, executed=executed)

    def vjp(self, fn: Callable[..., tuple[Variable, ...]], *primals: Variable) -> tuple[tuple[Variable, ...], Pullback]:
        inputs = [Variable(p.values.copy(), Node() if _is_floating(p.values) else None) for p in primals]
        outputs = fn(*inputs)
        wanted = [(x.node, x.values.shape, x.values.dtype) for x in inputs if x.node is not None]
        del inputs  # what the program doesn't save is not held by the pullback either

        def pullback(cotangents: Sequence[Variable | None], retain: bool) -> list[Variable]:
            found = backward(outputs, cotangents, [node for node, _, _ in wanted], retain=retain)
            return [g or Variable(np.zeros(*like)) for g, (_, *like) in zip(found, wanted, strict=True)]

        return outputs, pullback

    def seed(self, seed: int) -> None:
        tape.generator = np.random.default_rng(seed)

    def key(self, seed: int) -> int:
        return seed

    def named(self, array: Variable, name: str) -> Variable:
        return Operation(NAMED + name, np.copy, lambda g: g)(array)

    def gradient(self, fn: Callable[[Variable], Variable]) -> Callable[[Variable], Variable]:
        def gradient(x: Variable) -> Variable:
            x = x if x.node is not None else Variable(x.values, Node())
            assert x.node is not None
            total = sum_(fn(x))
            (found,) = backward([total], [self.ones_like(total)], [x.node], retain=True, record=True)
            return zeros_like(x) if found is None else found

        return gradient

    def needs_gradient(self, array: Variable) -> bool:
        return array.node is not None

    def stop_gradient(self, array: Variable) -> Variable:
        return OPERATIONS["stop_gradient"](array)

    @contextlib.contextmanager
    def tracking(self) -> Iterator[Callable[[], int]]:
        made: dict[int, weakref.ref[Values]] = {}

        def shown(values: Values) -> None:
            while isinstance(values.base, np.ndarray):
                values = values.base  # a view holds what it looks at
            made[id(values)] = weakref.ref(values)

        def held() -> int:
            gc.collect()
            return sum(values.nbytes for found in made.values() if (values := found()) is not None)

        with tape.switched(observers=[*tape.observers, shown]):
            yield held


def _decorator(options: dict[str, Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    chosen = Options(**options)

    def decorate(region: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(region)
        def checkpointed(*args: Any, **kwargs: Any) -> Any:
            return checkpoint(region, args, kwargs, chosen)

        return checkpointed

    return decorate


CAPABILITIES = frozenset(
    {
        Capability.KEYWORDS,
        Capability.NESTED_ARGUMENTS,
        Capability.STRUCTURED_RESULTS,
        Capability.CAPTURED_ONLY,
        Capability.FREE_CAPTURES,
        Capability.DECORATOR,
        Capability.EARLY_STOP,
        Capability.NO_EARLY_STOP,
        Capability.UNPRESERVED_RANDOM,
        Capability.DETERMINISM_CHECK,
        Capability.NO_DETERMINISM_CHECK,
        Capability.PARTIAL_BACKWARD,
        Capability.HIGHER_ORDER,
        Capability.GRADIENT_INSIDE,
        Capability.POLICY_BY_OP,
        Capability.POLICY_BY_NAME,
        Capability.POLICY_FUNCTION,
    }
)


def tape_checkpointer(host: TapeHost) -> Checkpointer:
    return Checkpointer(
        lambda region, args, kwargs, options: checkpoint(region, args, kwargs, Options(**options)),
        CAPABILITIES,
        _decorator,
    )


adapter = Adapter("tape", "1", TapeHost, {"tape": tape_checkpointer})
