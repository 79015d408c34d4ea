"""Structures of arrays: taken apart, put together again, compared to the bit or within a stated tolerance."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ckptspec.conformance.backend import Array


@dataclass(frozen=True)
class Place:
    """Where an array was in a structure."""

    index: int


def flatten(structure: Any, is_array: Callable[[object], bool]) -> tuple[Any, list[Array]]:
    """The structure with places for its arrays, and the arrays."""
    arrays: list[Array] = []

    def place(array: Array) -> Place:
        arrays.append(array)
        return Place(len(arrays) - 1)

    return map_leaves(structure, is_array, place), arrays


def map_leaves(structure: Any, is_leaf: Callable[[object], bool], change: Callable[[Any], Any]) -> Any:
    if is_leaf(structure):
        return change(structure)
    if isinstance(structure, dict):
        return {k: map_leaves(v, is_leaf, change) for k, v in structure.items()}
    if isinstance(structure, list | tuple):
        return type(structure)([map_leaves(v, is_leaf, change) for v in structure])
    return structure


def difference(expected: Any, observed: Any, where: str = "", tolerance: float = 0.0) -> str | None:
    """How two structures of NumPy arrays differ, or None if they are equal: to the bit, or within the tolerance."""
    if isinstance(expected, np.ndarray) and isinstance(observed, np.ndarray):
        if expected.dtype != observed.dtype or expected.shape != observed.shape:
            return f"{where}: {expected.dtype}{expected.shape} plain, {observed.dtype}{observed.shape} checkpointed"
        is_inexact = np.issubdtype(expected.dtype, np.inexact)
        if np.array_equal(expected, observed, equal_nan=is_inexact):
            return None
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=0.0) if tolerance else 0.0
        if tolerance and np.allclose(expected, observed, tolerance, tolerance * scale, equal_nan=is_inexact):
            return None
        return f"{where}: {_excerpt(expected)} plain, {_excerpt(observed)} checkpointed"
    if type(expected) is not type(observed):
        return f"{where}: {type(expected).__name__} plain, {type(observed).__name__} checkpointed"
    if isinstance(expected, dict | list | tuple):
        if len(expected) != len(observed) or (isinstance(expected, dict) and list(expected) != list(observed)):
            return f"{where}: structures differ"
        keys: Iterable[Any] = expected if isinstance(expected, dict) else range(len(expected))
        return next(
            (d for k in keys if (d := difference(expected[k], observed[k], f"{where}[{k!r}]", tolerance))), None
        )
    return None if expected == observed else f"{where}: {expected!r:.200} plain, {observed!r:.200} checkpointed"


def _excerpt(array: np.ndarray[Any, Any]) -> str:
    first = ", ".join(f"{v:.6g}" for v in array.ravel()[:4])
    return f"[{first}{', …' if array.size > 4 else ''}]"
