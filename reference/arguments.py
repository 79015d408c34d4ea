"""What a region was called with: found, kept, checked for mutation, and handed to each replay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from types import CellType, FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ckptspec.reference import engine
from ckptspec.reference.errors import MutatedArgumentError

# Types that hold no tensor; everything else is searched as a pytree.
ATOMS = frozenset({type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, FunctionType})


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """All tensors among `values`, in lists, tuples, dicts and other pytrees too. Not those that objects hide."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif type(value) not in ATOMS:
            found.extend(leaf for leaf in engine.flatten(value)[0] if isinstance(leaf, Tensor))
    return found


def captured_by(function: Any, modules: bool, depth: int = 2) -> list[Tensor]:
    """The tensors that a function can be seen to hold without running it: in its closure and defaults, as partial or
    method, and in small lists and dicts there; with `modules`, parameters and inner functions too. Attributes and
    globals are not searched.
    """
    held: Iterable[Any] = (function,)
    if isinstance(function, FunctionType):
        held = [c.cell_contents for c in function.__closure__ or () if c != _EMPTY]
        if function.__defaults__ or function.__kwdefaults__:
            held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    elif isinstance(function, MethodType):
        held = (function.__self__,)
    elif isinstance(function, functools.partial):
        held = function.func, *function.args, *function.keywords.values()
    found: list[Tensor] = []
    for value in held:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, list | tuple | dict) and len(value) <= _SMALL:
            found += [x for x in (value.values() if isinstance(value, dict) else value) if isinstance(x, Tensor)]
        elif modules and isinstance(value, torch.nn.Module):
            found += value.parameters()
        elif modules and depth and isinstance(value, FunctionType | MethodType | functools.partial):
            found += captured_by(value, modules, depth - 1)
    return found


_EMPTY = CellType()
_SMALL = 64


class Versions:
    """The version counters of some tensors: that of a tensor grows with each in-place change of its values."""

    __slots__ = ("seen",)

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.seen = [(t, t._version) for t in tensors if not t.is_inference()]

    def tensors(self) -> list[Tensor]:
        return [tensor for tensor, _ in self.seen]

    def error(self) -> MutatedArgumentError | None:
        """What to raise if one has changed by now (MUT-01, MUT-03)."""
        for tensor, version in self.seen:
            if tensor._version != version:
                return MutatedArgumentError(tuple(tensor.shape), tensor._version, version)
        return None


class Arguments:
    """The arguments of one region, until its frame dies.

    Without saved-tensor hooks in scope they are kept as they are: replays get the same objects (IO-08). Otherwise each
    tensor, however it was passed, is saved through these hooks: they belong to the surrounding region, which recomputes
    the tensor (NEST-02, MEM-10), or to the user, who may offload it. Replays then get new containers.
    """

    __slots__ = ("args", "kwargs", "saved", "versions")

    def __init__(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        tensors: list[Tensor],
        captured: list[Tensor],
        hooked: bool,
        nested: bool,
    ) -> None:
        self.args, self.kwargs = args, kwargs
        self.saved: list[Callable[[], Tensor]] | None = None
        self.versions = Versions(captured if hooked else tensors + captured)
        if not hooked:
            return
        # The user's hooks see a tensor once (HOOK-02). A surrounding region sees it in each place: it counts what is
        # saved, and in its replay a tensor that stood in two places may be two tensors (NEST-12).
        keys = range(len(tensors)) if nested else [*map(id, tensors)]
        distinct = dict(zip(keys, tensors, strict=True))
        self.saved = [engine.save_through_hooks(t) for t in distinct.values()]
        place_of = {key: _Place(i) for i, key in enumerate(distinct)}
        places = iter([place_of[key] for key in keys])
        self.args = tuple([_without_tensors(x, places) for x in args])
        self.kwargs = {name: _without_tensors(x, places) for name, x in kwargs.items()}

    def restored(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments for a replay. Raises MutatedArgumentError."""
        if error := self.versions.error():
            raise error
        if self.saved is None:
            return self.args, self.kwargs
        tensors: list[Tensor] = []
        for unpack in self.saved:  # no comprehension: `unpack` may replay a region around, and stack depth is scarce
            tensors.append(unpack())  # noqa: PERF401
        return tuple([_with(x, tensors) for x in self.args]), {k: _with(x, tensors) for k, x in self.kwargs.items()}


class _Place(int):
    """Stands for the tensor that was saved at this position."""


class _Container(NamedTuple):
    """Stands for a container, with places instead of tensors."""

    leaves: list[Any]
    spec: Any


def _without_tensors(value: Any, places: Iterator[_Place]) -> Any:
    if isinstance(value, Tensor):
        return next(places)
    if type(value) in ATOMS:
        return value
    leaves, spec = engine.flatten(value)
    return _Container([next(places) if isinstance(x, Tensor) else x for x in leaves], spec)


def _with(value: Any, tensors: list[Tensor]) -> Any:
    if type(value) is _Place:
        return tensors[value]
    if type(value) is _Container:
        return engine.unflatten([_with(leaf, tensors) for leaf in value.leaves], value.spec)
    return value
