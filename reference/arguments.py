"""What a region was called with: found, kept, checked for mutation, and handed to each replay."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import CellType, FunctionType, MethodType
from typing import Any

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


def captured_by(function: Any, depth: int = 4) -> list[Tensor]:
    """The floating-point tensors that a function can be seen to hold without running it: a module's parameters, and
    what is in closures, partials and bound methods. Globals, and attributes of other objects, are not searched.
    """
    if isinstance(function, Tensor):
        return [function] if function.is_floating_point() or function.is_complex() else []
    if isinstance(function, torch.nn.Module):
        return list(function.parameters())
    held: Iterable[Any] = ()
    if isinstance(function, FunctionType):
        held = [c.cell_contents for c in function.__closure__ or () if c != _EMPTY]
    elif isinstance(function, MethodType):
        held = function.__self__, function.__func__
    elif isinstance(function, functools.partial):
        held = function.func, *function.args, *function.keywords.values()
    return [tensor for value in held for tensor in captured_by(value, depth - 1)] if depth else []


_EMPTY = CellType()


class Versions:
    """The version counters of some tensors: that of a tensor grows with each in-place change of its values."""

    __slots__ = ("seen",)

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.seen = [(t, t._version) for t in tensors if not t.is_inference()]

    def error(self) -> MutatedArgumentError | None:
        """What to raise if one has changed by now (MUT-01, MUT-03)."""
        for tensor, version in self.seen:
            if tensor._version != version:
                return MutatedArgumentError(tuple(tensor.shape), tensor._version, version)
        return None


class Arguments:
    """The arguments of one region, until its frame dies.

    Without saved-tensor hooks in scope they are kept as they are: replays get the same objects (IO-08). Otherwise each
    tensor, however it was passed, is saved through these hooks, once (HOOK-02): they belong to the surrounding region,
    which recomputes the tensor (NEST-02, MEM-10), or to the user, who may offload it. Replays then get new containers.
    """

    __slots__ = ("args", "kwargs", "saved", "versions")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor], hooked: bool) -> None:
        if not hooked:
            self.args, self.kwargs, self.versions = args, kwargs, Versions(tensors)
            self.saved = None
            return
        once = {id(t): t for t in tensors}
        unpack = {key: engine.save_through_hooks(t) for key, t in once.items()}
        self.saved = [_recipe(x, unpack) for x in args], {k: _recipe(x, unpack) for k, x in kwargs.items()}

    def restored(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional and keyword arguments for a replay. Raises MutatedArgumentError."""
        if self.saved is None:
            if error := self.versions.error():
                raise error
            return self.args, self.kwargs
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for make in self.saved[0]:  # no comprehension: each `make` may be a region around, and stack depth is scarce
            args.append(make())  # noqa: PERF401
        for name, make in self.saved[1].items():
            kwargs[name] = make()
        return tuple(args), kwargs


def _recipe(value: Any, unpack: dict[int, Callable[[], Tensor]]) -> Callable[[], Any]:
    """How to make `value` again, its tensors from `unpack`, by id."""
    if isinstance(value, Tensor):
        return unpack[id(value)]
    if type(value) in ATOMS:
        return lambda: value
    leaves, spec = engine.flatten(value)
    recipes = [unpack[id(x)] if isinstance(x, Tensor) else lambda x=x: x for x in leaves]
    return lambda: engine.unflatten([make() for make in recipes], spec)
