"""The operations that drawn programs are made of: how each is written, what it takes, and what it gives.

An operation is text in which `{x}` and `{y}` stand for its operands, and a rule that says for kinds of arrays whether
it applies and what kind its result is. What it needs of a host stands in its text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

LARGEST = 12
"""Elements of an array, at most."""


@dataclass(frozen=True)
class Kind:
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: str = "float64"

    @property
    def is_floating(self) -> bool:
        return self.dtype.startswith("float")

    def shaped(self, *shape: int) -> Kind:
        return Kind(shape, self.dtype)

    def typed(self, dtype: str) -> Kind:
        return Kind(self.shape, dtype)


Rule = Callable[..., Kind | None]
"""The result's kind for those of the operands, None where the operation does not apply."""


@dataclass(frozen=True)
class Operation:
    """An operation.

    text: with {x} and {y} for the operands and {shape} for the result's shape. rule: see Rule; for the first of two
    operands alone it is asked with that operand twice. is_view: the result may share the first operand's memory.
    is_cut: no gradient flows through it. is_change: it changes the first operand in place and has no other result.
    """

    text: str
    rule: Rule
    is_view: bool = False
    is_cut: bool = False
    is_change: bool = False

    @property
    def operands(self) -> int:
        return 1 + ("{y}" in self.text)

    @property
    def needs(self) -> tuple[str, ...]:
        """The host's operations in it."""
        return tuple(re.findall(r"ops\.(\w+)", self.text))


# -- rules


def same(x: Kind) -> Kind | None:
    return x if x.is_floating else None


def stretched(x: Kind, y: Kind) -> Kind | None:
    """Element by element, the shorter shape repeated."""
    if x.dtype != y.dtype or not x.is_floating:
        return None
    rank = max(len(x.shape), len(y.shape))
    pairs = [*zip(*((1,) * (rank - len(k.shape)) + k.shape for k in (x, y)), strict=True)]
    fits = all(n == m or 1 in (n, m) for n, m in pairs)
    return _small(x.shaped(*(max(pair) for pair in pairs))) if fits else None


def compared(x: Kind, y: Kind) -> Kind | None:
    kind = stretched(x, y)
    return kind and kind.typed("bool")


def chosen(mask: Kind, y: Kind) -> Kind | None:
    return y if (mask.dtype, mask.shape) == ("bool", y.shape) and y.is_floating else None


def changed(x: Kind, y: Kind) -> Kind | None:
    return x if stretched(x, y) == x else None


def product(x: Kind, y: Kind) -> Kind | None:
    if x.dtype != y.dtype or not x.is_floating or (len(x.shape), len(y.shape)) != (2, 2) or x.shape[1] != y.shape[0]:
        return None
    return x.shaped(x.shape[0], y.shape[1])


def reduced(x: Kind) -> Kind | None:
    return x.shaped() if x.is_floating else None


def without_first_axis(x: Kind) -> Kind | None:
    return x.shaped(*x.shape[1:]) if x.is_floating and x.shape else None


def without_last_axis(x: Kind) -> Kind | None:
    return x.shaped(*x.shape[:-1]) if x.is_floating and x.shape else None


def shorter(x: Kind) -> Kind | None:
    return x.shaped(x.shape[0] - 1, *x.shape[1:]) if x.is_floating and x.shape and x.shape[0] > 1 else None


def flat_or_square(x: Kind) -> Kind | None:
    """A vector from more axes, two axes from a vector."""
    if not x.is_floating:
        return None
    size = math.prod(x.shape)
    if len(x.shape) != 1:
        return x.shaped(size)
    rows = next((n for n in (3, 2) if size % n == 0), 1)
    return x.shaped(rows, size // rows)


def turned(x: Kind) -> Kind | None:
    return x.shaped(*reversed(x.shape)) if x.is_floating and len(x.shape) == 2 else None


def with_first_axis(x: Kind) -> Kind | None:
    return x.shaped(1, *x.shape) if x.is_floating and len(x.shape) < 2 else None


def repeated(x: Kind) -> Kind | None:
    return _small(x.shaped(2, *x.shape)) if x.is_floating and len(x.shape) < 2 else None


def joined(x: Kind, y: Kind) -> Kind | None:
    if not x.shape or not y.shape or (x.dtype, x.shape[1:]) != (y.dtype, y.shape[1:]) or not x.is_floating:
        return None
    return _small(x.shaped(x.shape[0] + y.shape[0], *x.shape[1:]))


def to(dtype: str) -> Rule:
    return lambda x: x.typed(dtype) if x.dtype not in (dtype, "bool") else None


def _small(kind: Kind) -> Kind | None:
    return kind if math.prod(kind.shape) <= LARGEST else None


# -- operations, the simplest first: that is what a program is made smaller with

PRODUCT = Operation("ops.matmul({x}, {y})", product)
SAVING = (
    *(Operation(f"ops.{name}({{x}})", same) for name in ("sin", "cos", "square")),  # what they are given
    *(Operation(f"ops.{name}({{x}})", same) for name in ("exp", "tanh", "sigmoid", "relu")),  # their result
    Operation("ops.multiply({x}, {y})", stretched),  # both that they are given
    PRODUCT,
)
OTHERS = (
    Operation("ops.negative({x})", same),
    Operation("ops.add({x}, {y})", stretched),
    Operation("ops.sum({x})", reduced),
    Operation("ops.sum({x}, axis=0)", without_first_axis),
    Operation("ops.mean({x}, axis=-1)", without_last_axis),
    Operation("ops.reshape({x}, {shape})", flat_or_square, is_view=True),
    Operation("ops.permute_dims({x}, (1, 0))", turned, is_view=True),
    Operation("ops.expand_dims({x}, 0)", with_first_axis, is_view=True),
    Operation("ops.broadcast_to({x}, {shape})", repeated, is_view=True),
    Operation("{x}[0]", without_first_axis, is_view=True),
    Operation("{x}[1:]", shorter, is_view=True),
    Operation("ops.concat([{x}, {y}])", joined),
    Operation('ops.astype({x}, "float64")', to("float64")),
    Operation('ops.astype({x}, "float32")', to("float32")),
    Operation('ops.astype({x}, "int64")', to("int64"), is_cut=True),
    Operation("ops.less({x}, {y})", compared, is_cut=True),
    Operation("ops.where({x}, {y}, 0.0)", chosen),
    Operation("ops.stop_gradient({x})", same, is_view=True, is_cut=True),
    Operation("ops.custom(ops.sin, ops.multiply)({x})", same),  # whose gradient is g * x
)
RANDOM = (
    Operation("ops.dropout({x}, 0.5)", same),
    Operation("ops.multiply({x}, ops.uniform_like({x}))", same),
    Operation("ops.uniform_like({x})", same, is_cut=True),
)
CHANGING = (
    Operation("ops.add_({x}, {y})", changed, is_change=True),
    Operation("ops.multiply_({x}, {y})", changed, is_change=True),
)
