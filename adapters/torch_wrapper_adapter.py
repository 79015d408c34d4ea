"""torch.distributed's module wrappers: each region becomes a module, which is wrapped and called.

Three variants: `checkpoint_wrapper` in both of its forms, and the composable `checkpoint`, which leaves a module as it
is and hooks into its call. All are built on torch.utils.checkpoint, whose settings and policies hold for them too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.utils.checkpoint
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

from ckptspec.adapters import words
from ckptspec.adapters.hosts.torch_host import OPERATORS, TorchHost
from ckptspec.adapters.torch_names import capabilities_of, in_words_of, words_of
from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, Region

Wrap = Callable[..., torch.nn.Module]
"""`wrap(module, **options)` returns the module that is called instead."""

# What belongs to the function below and not to a wrapper.
NOT_WRAPPED = {Capability.DECORATOR, Capability.SEQUENTIAL}
# The composable form has contexts of its own, with which `debug` does not go.
NOT_COMPOSABLE = {Capability.DEBUG}
WITHOUT_GRAPH: Wrap = functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.REENTRANT)


class _Region(torch.nn.Module):
    """A region as a module."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self.region = region

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.region(*args, **kwargs)


def _variant(
    wrap: Wrap,
    also: set[Capability],
    lacks: set[Capability],
    host: TorchHost,
    *,
    is_reentrant: bool = False,
) -> Checkpointer:
    host.uses_backward = is_reentrant
    below = torch.utils.checkpoint

    def wrapper(module: torch.nn.Module, options: dict[str, Any]) -> torch.nn.Module:
        return wrap(module, **in_words_of(below, OPERATORS, options))

    def wrap_parts(model: torch.nn.Module, is_wanted: Callable[[Any], bool], options: dict[str, Any]) -> None:
        apply_activation_checkpointing(model, functools.partial(wrapper, options=options), is_wanted)

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return wrapper(_Region(region), options)(*args, **kwargs)

    names = {
        "WRAP": "composable" if wrap is composable else "checkpoint_wrapper",
        "FORM": "checkpoint_impl=CheckpointImpl.REENTRANT" if is_reentrant else "",
    }
    capabilities = capabilities_of(below, is_reentrant=is_reentrant) - lacks | also
    return Checkpointer(
        call,
        capabilities,
        group=getattr(below, "GraphExecGroup", None),
        wrapper=wrapper,
        wrap_parts=wrap_parts if Capability.WRAPPED_PARTS in capabilities else None,
        api=below,
        words=words_of(below, host, names, words.TORCH_WRAPPER),
    )


WRAPS = {Capability.WRAPPER}
PARTS = {Capability.WRAPPER, Capability.WRAPPED_PARTS}

adapter = Adapter(
    "torch-wrapper",
    torch.__version__,
    TorchHost,
    {
        "wrapper non-reentrant": functools.partial(_variant, checkpoint_wrapper, PARTS, NOT_WRAPPED),
        "wrapper reentrant": functools.partial(
            _variant, WITHOUT_GRAPH, PARTS | {Capability.KEYWORDS}, NOT_WRAPPED, is_reentrant=True
        ),
        "composable": functools.partial(_variant, composable, WRAPS, NOT_WRAPPED | NOT_COMPOSABLE),
    },
)
