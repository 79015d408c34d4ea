"""Faults of autocast."""

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import ambient, engine
from ckptspec.witnesses.witness import with_options, witness


@witness("AMP-01", "FUZZ-14", source="facebookresearch/fairscale#1199")
def the_dtype_of_autocast_is_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay has autocast on if forward had, but with the default dtype."""
    state = ambient.autocast_state

    def without_dtype(kinds: list[str]) -> ambient.Autocast:
        return {kind: (on, torch.bfloat16, cached) for kind, (on, _, cached) in state(kinds).items()}

    patch.setattr(ambient, "autocast_state", without_dtype)
    return with_options(checkpointer, determinism_check="none")


@witness("AMP-01", source="pytorch/pytorch#71124")
def the_cache_of_autocast_is_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay always caches casts."""
    state = ambient.autocast_state

    def cached(kinds: list[str]) -> ambient.Autocast:
        return {kind: (on, dtype, True) for kind, (on, dtype, _) in state(kinds).items()}

    patch.setattr(ambient, "autocast_state", cached)


@witness("AMP-01", "AMP-02", "AMP-03", source="NVIDIA/TransformerEngine#791")
def a_replay_has_the_autocast_of_backward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Autocast is left alone for a replay."""
    patch.setattr(engine, "any_autocast_enabled", lambda: False)
    return with_options(checkpointer, determinism_check="none")
