"""`--adapter=dropin:MODULE`: any module with torch.utils.checkpoint's names over torch tensors. No adapter to write."""

from __future__ import annotations

from types import ModuleType

from ckptspec.adapters import torch_names
from ckptspec.adapters.hosts.torch_host import OPERATORS, TorchHost
from ckptspec.conformance.backend import Adapter, Capability


def adapter_of(module: ModuleType, *, name: str, version: str, also: frozenset[Capability] = frozenset()) -> Adapter:
    """The adapter of a module with torch.utils.checkpoint's names. Raises HostError if it has no `checkpoint`."""
    return torch_names.adapter_of(module, name=name, version=version, host=TorchHost, operators=OPERATORS, also=also)
