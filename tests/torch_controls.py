"""The controls over torch.utils.checkpoint: `pytest conformance --adapter=tests/torch_controls.py:controls`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from controls import CONTROLS, Tools, faulty
from torch.utils._python_dispatch import TorchDispatchMode

from ckptspec.adapters.hosts.torch_host import TorchHost
from ckptspec.adapters.torch_adapter import adapter as right
from ckptspec.conformance.backend import Adapter


@contextlib.contextmanager
def _untracked() -> Iterator[None]:
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        yield


class _Remember(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, arrays: list[Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.arrays = arrays

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.arrays.append(result)
        return result


TOOLS = Tools(_untracked, _Remember)

controls = Adapter(
    "torch-controls",
    right.version,
    TorchHost,
    {name: faulty(right.variants["non-reentrant"], control, TOOLS) for name, control in CONTROLS.items()},
)
