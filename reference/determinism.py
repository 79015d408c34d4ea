"""What is compared between a value saved in the forward and its recomputed twin.

`"none"`     nothing but the number of values (DET-03).
`"default"`  shape, dtype and device (DET-01), and for tensors that the region captures the version counter: they must
             not have been modified in place in between. Attributes only: well under a microsecond a value.
`"values"`   also the bits, by a digest of each value. Costs a copy to the CPU and a hash per saved value, in the
             forward and again in the replay. Plain strided tensors; others are compared as by "default".
"""

from __future__ import annotations

import ctypes
import hashlib
import operator
from collections.abc import Callable

import torch
from torch import Tensor

Description = tuple[torch.Size, torch.dtype, torch.device, int]


# What a recomputed value must share with the saved one. An attrgetter, because it runs twice for each saved value.
describe: Callable[[Tensor], Description] = operator.attrgetter("shape", "dtype", "device", "_version")


def digest(tensor: Tensor) -> bytes | None:
    """A hash of the bits; None where there are none to read (sparse tensors, subclasses on the CPU)."""
    if tensor.layout is not torch.strided:
        return None
    host = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if type(host) is not Tensor:
        return None
    return hashlib.blake2b(ctypes.string_at(host.data_ptr(), host.nbytes), digest_size=16).digest()


class ValueCheck:
    """Digests of one region's saved values, for `determinism_check="values"`.

    An operation may save a buffer that its kernel fills later (STOP-10), so a value is held until the next operation
    saves or the forward ends, and digested then; not at all if it was overwritten meanwhile.
    """

    def __init__(self) -> None:
        self.operation = -1
        self.pending: list[tuple[int, Tensor, int]] = []
        self.digests: dict[int, bytes | None] = {}  # by position

    def note(self, position: int, tensor: Tensor, operation: int) -> None:
        if operation != self.operation:
            self.settle()
            self.operation = operation
        self.pending.append((position, tensor.detach(), tensor._version))

    def settle(self) -> None:
        for position, tensor, version in self.pending:
            self.digests[position] = digest(tensor) if tensor._version == version else None
        self.pending.clear()

    def differs(self, position: int, tensor: Tensor) -> bool:
        self.settle()  # a backward inside of the forward may ask before it is done
        saved = self.digests[position]
        return saved is not None and saved != digest(tensor)
