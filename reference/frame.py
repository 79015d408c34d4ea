"""A region's memory: slots in place of saved tensors, the frame that can recompute them, and a replay that does.

Who keeps what alive, until when:

1. The **graph** owns the slots: one in the place of each tensor that an operation of the region saved. It also owns the
   frame, through the hooks that it keeps beside each slot. When a graph node is released (a backward without
   retain_graph passed it, or the output was dropped), its slots go; with the last one, the frame goes (MEM-06, MEM-09).
2. The **frame** owns the function, its arguments and the ambient state (MEM-07). It knows its slots weakly.
3. A **slot** owns the recomputed values that stand for it, one for each backward that is running. Taking the value
   removes it (MEM-02, MEM-03); if the slot dies first, the value dies with it.
4. An **ending** removes what a backward did not take (MEM-05). It belongs to whatever bounds the replay's use: the
   engine's graph task, a GraphExecGroup, or, outside of both, the one call that asked. It knows the frame weakly. The
   owner drops it when it ends, also when it ends by an exception.
5. A **replay** lives as long as its call of the function. The graph that it records dies with it.

Nothing here points from a frame to the graph, so there is no cycle, and nothing waits for the garbage collector.
A slot of an inner region's argument belongs to the outer frame: each frame keeps its own (NEST-02).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, ContextDecorator
from typing import Any, NoReturn
from weakref import ReferenceType, ref

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from ckptspec.reference import engine
from ckptspec.reference.ambient import Ambient
from ckptspec.reference.arguments import Arguments, tensors_in
from ckptspec.reference.determinism import Description, ValueCheck, describe
from ckptspec.reference.errors import (
    CheckpointError,
    CountMismatchError,
    GroupOverlapError,
    MetadataMismatchError,
    MutatedCaptureError,
    OverwrittenValueError,
    Stop,
    ValueMismatchError,
)

Hooks = tuple[Callable[..., Any], Callable[..., Any]]
OUTSIDE = -1  # engine.graph_task() outside of a backward


class Slot:
    """The place in the graph where a saved tensor would be."""

    __slots__ = ("__weakref__", "description", "index", "owner", "values")

    def __init__(self, index: int, description: Description, owner: Tensor) -> None:
        self.index = index
        self.description = description
        self.owner = ref(owner)  # the saved tensor, or what it is a view of
        self.values: dict[Hashable, tuple[Tensor, int]] = {}  # by backward; with the version at which it was saved


class Ending:
    """Forgets what was recomputed for one backward, when called or when dropped."""

    __slots__ = ("frame", "key")

    def __init__(self, frame: Frame, key: Hashable) -> None:
        self.frame = ref(frame)
        self.key = key

    def __call__(self) -> None:
        frame = self.frame()
        if frame is not None:
            frame.forget(self.key)

    __del__ = __call__


class Frame:
    """What one region remembers from its forward on, and its saved-tensor hooks there: `pack` and `unpack`."""

    __slots__ = (
        "__weakref__", "ambient", "arguments", "check", "complete", "context", "early_stop", "explain", "filling",
        "function", "lock", "operation", "replayed", "slots", "user_hooks", "values",
    )  # fmt: skip

    def __init__(
        self, function: Callable[..., Any], arguments: Arguments, ambient: Ambient, check: str, early_stop: bool
    ) -> None:
        self.function = function
        self.arguments = arguments
        self.ambient = ambient
        self.check = check != "none"
        self.values = ValueCheck() if check == "values" else None
        self.early_stop = early_stop
        self.context: AbstractContextManager[Any] | None = None  # of replays
        self.explain: Callable[[CheckpointError], CheckpointError] | None = None
        self.user_hooks: Hooks | None = None  # around the region, whatever regions lie between
        self.slots: list[ReferenceType[Slot]] = []
        self.replayed: dict[Hashable, int] = {}  # by backward: how many slots existed when it was replayed for
        self.operation = -1
        self.filling = False
        self.complete = False
        self.lock = threading.RLock()  # device threads of one backward, or backwards in threads, meet here (THREAD-02)

    def pack(self, tensor: Tensor) -> Slot:
        """The region saves `tensor`: keep a slot instead."""
        slot = Slot(len(self.slots), describe(tensor), _owner(tensor))
        self.slots.append(ref(slot))
        # An operation that saves a buffer before its kernel fills it must not be stopped there (STOP-10, LB-01). Only a
        # tensor that needs no gradient can be such a buffer; any of those that the operation saves may be.
        operation = engine.sequence_number()
        if operation != self.operation:
            self.operation, self.filling = operation, False
        if not tensor.requires_grad:
            self.filling = True
        if self.values is not None:
            self.values.note(slot.index, tensor, operation)
        return slot

    def unpack(self, slot: Slot) -> Tensor:
        """A backward asks for the value in `slot`: take it, or recompute it with all others of the region first."""
        if torch.compiler.is_compiling():
            value: Tensor = engine.uncompiled(self.unpack, slot)
            return value
        group = engine.current_group()
        key: Hashable = engine.graph_task() if group is None else group.key
        found = slot.values.pop(key, None)
        if found is None:
            with self.lock:
                found = slot.values.pop(key, None) or self._recompute(slot, key, group)
        tensor, version = found
        if tensor._version != version:  # MUT-05, LB-04: autograd does not compare versions under hooks
            self.fail(OverwrittenValueError(slot.index, tensor._version, version))
        if self.values is not None and self.values.differs(slot.index, tensor):
            self.fail(ValueMismatchError(slot.index))
        return tensor

    def forward_is_done(self) -> None:
        self.complete = True
        if self.values is not None:
            self.values.settle()
        self.ambient.check_use(self._kinds)

    def _kinds(self) -> set[str]:
        return {slot.description[2].type for weak in self.slots if (slot := weak()) is not None}

    def forget(self, key: Hashable) -> None:
        """Drop what is left of one backward's values."""
        self.replayed.pop(key, None)
        for weak in self.slots:
            slot = weak()
            if slot is not None:
                slot.values.pop(key, None)

    def fail(self, error: CheckpointError) -> NoReturn:
        if self.explain is not None:
            raise self.explain(error) from error  # ERR-05
        raise error

    def _recompute(self, slot: Slot, key: Hashable, group: Any) -> tuple[Tensor, int]:
        known = slot.index < self.replayed.get(key, 0)
        if known and group is not None:
            raise GroupOverlapError(slot.index)  # GROUP-03
        if known or key == OUTSIDE:
            # Asked for outside of a backward (FUNC-04), or twice in one (FUNC-03): a replay for this value alone.
            key = object()
        ending = Ending(self, key)
        if group is not None:
            group.endings.append(ending)
        elif isinstance(key, int):
            engine.at_end_of_backward(ending)
        args, kwargs = self.arguments.restored()  # may replay the surrounding region: from here, depth is not added to
        with engine.hooks_kept([*tensors_in((*args, *kwargs.values())), *self.arguments.versions.tensors()]):
            Replay(self, key).run(args, kwargs)
        self.replayed[key] = len(self.slots)
        return slot.values.pop(key)


class Replay:
    """One re-execution of a region on behalf of the backward `key`: fills the slots that are still alive."""

    __slots__ = ("count", "detach", "frame", "key", "mismatches", "stopper", "surplus", "total", "user_hooks")

    def __init__(self, frame: Frame, key: Hashable) -> None:
        self.frame = frame
        self.key = key
        self.count = 0
        self.total = len(frame.slots)  # a backward inside of the forward may ask when it is not complete yet (NEST-04)
        self.surplus = False
        self.detach = Tensor.detach if frame.context is None else engine.detach_past_modes
        self.mismatches: list[tuple[int, Description, Description]] = []
        self.stopper: TorchFunctionMode | None = None
        self.user_hooks: Hooks | None = None  # regions replayed inside save for no one: nothing to show to user hooks

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        frame = self.frame
        with frame.ambient.restored(), saved_tensors_hooks(self.pack, _itself):
            context = frame.context
            if context is None:
                self._call(args, kwargs)
            elif isinstance(context, ContextDecorator):  # maybe single-use, but as decorators they renew (API-16)
                context(self._call)(args, kwargs)
            else:
                with context:
                    self._call(args, kwargs)
        self._judge()

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            self.frame.function(*args, **kwargs)
        except Stop as stop:  # caught inside of the context, which thus sees a success (API-17)
            if stop.replay is not self:
                raise
        finally:
            if self.stopper is not None:
                engine.remove(self.stopper)

    def pack(self, tensor: Tensor) -> Tensor:
        """The replay saves `tensor`: hand it to its slot. The replay's own graph keeps it, too, while it lasts."""
        frame, index = self.frame, self.count
        if index >= self.total:
            return self._beyond(tensor)
        self.count = index + 1
        slot = frame.slots[index]()
        if slot is not None and frame.check:
            self._compare(slot, tensor)
        if tensor.requires_grad:  # else the very object is kept (FUNC-02)
            tensor = self.detach(tensor)
        if slot is not None:  # else the graph released it: a backward inside of the forward did (NEST-04)
            slot.values[self.key] = tensor, tensor._version
        if index + 1 == self.total and frame.early_stop:
            if not frame.filling:
                raise Stop(self)  # STOP-01
            self.stopper = _StopAtNextCall(self)
            engine.push_below(self.stopper)
        return tensor

    def _beyond(self, tensor: Tensor) -> Tensor:
        if self.frame.early_stop:
            raise Stop(self)  # the operation that saved last is done
        if self.frame.complete:
            self.surplus = True
            raise Stop(self)
        return tensor

    def _compare(self, slot: Slot, tensor: Tensor) -> None:
        found, saved = describe(tensor), slot.description
        if found == saved:
            return
        # What the replay made may count its changes differently; what the region captures has been changed since.
        if found[:3] != saved[:3] or slot.owner() is _owner(tensor):
            self.mismatches.append((slot.index, saved, found))

    def _judge(self) -> None:
        frame = self.frame
        if self.surplus:
            frame.fail(CountMismatchError(self.total, "more"))
        if self.count < self.total:
            frame.fail(CountMismatchError(self.total, self.count))  # DET-02
        if not self.mismatches:
            return
        metadata = [(i, saved, found) for i, saved, found in self.mismatches if saved[:3] != found[:3]]
        if metadata:
            frame.fail(MetadataMismatchError(metadata))  # DET-01
        index, saved, found = self.mismatches[0]
        frame.fail(MutatedCaptureError(index, saved[3], found[3]))  # MUT-03, LB-05


class _StopAtNextCall(TorchFunctionMode):
    """Ends a replay at the next call of torch: the operation that saved last has by then filled it (STOP-10)."""

    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay = replay

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if engine.inside_kernel():  # still that very operation, executed by a dispatch mode or by Python
            return func(*args, **(kwargs or {}))
        raise Stop(self.replay)


def _owner(tensor: Tensor) -> Tensor:
    base = tensor._base
    return tensor if base is None else base


def _itself(tensor: Tensor) -> Tensor:
    return tensor
