"""Faults of randomness."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import selective
from ckptspec.reference.ambient import Ambient, Restored
from ckptspec.witnesses.witness import with_options, witness, wrapping


@witness("RNG-01", "RNG-07", "RNG-11", "FUZZ-02", "RNG-12", source="allenai/OLMo-core#828")
def replay_draws_afresh(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The generator's state is not restored for a replay."""
    return with_options(checkpointer, preserve_rng_state=False)


@witness("RNG-02", "RNG-06", "RNG-08")
def the_generator_stays_where_the_replay_left_it(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The generator's state is restored for a replay, but not after it."""
    leave = Restored.__exit__

    def leaving(restored: Restored, *error: Any) -> None:
        left = torch.get_rng_state()
        leave(restored, *error)
        torch.set_rng_state(left)

    patch.setattr(Restored, "__exit__", leaving)


@witness("RNG-05")
def a_failed_replay_leaves_its_generator(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The generator is put back only after a replay that ends well."""
    leave = Restored.__exit__

    def leaving(restored: Restored, *error: Any) -> None:
        left = torch.get_rng_state()
        leave(restored, *error)
        if error[0] is not None:
            torch.set_rng_state(left)

    patch.setattr(Restored, "__exit__", leaving)


@witness("RNG-03")
def an_unpreserved_region_draws_a_number(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """With `preserve_rng_state=False`, a number is drawn before the region runs."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: dict[str, Any]) -> Any:
        if options.get("preserve_rng_state") is False:
            torch.rand(1)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("RNG-04")
def forward_rewinds_the_generator(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """After forward the generator is where it was before the region."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: dict[str, Any]) -> Any:
        with torch.random.fork_rng([]):
            return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("RNG-03", "RNG-09", source="pytorch/pytorch#76737")
def an_unpreserved_region_is_a_plain_call(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """With `preserve_rng_state=False`, nothing is checkpointed."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: dict[str, Any]) -> Any:
        if options.get("preserve_rng_state") is False:
            return region(*args, **kwargs)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("RNG-07", "RNG-12", source="NVIDIA/Megatron-LM#5841")
def regions_share_one_state(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The state is kept in a buffer that the next region overwrites."""
    make, buffer = Ambient.__init__, torch.get_rng_state()

    def sharing(ambient: Ambient, *args: Any, **kwargs: Any) -> None:
        make(ambient, *args, **kwargs)
        if ambient.random is not None:
            ambient.random = buffer.copy_(ambient.random)

    patch.setattr(Ambient, "__init__", sharing)


@witness("RNG-14", source="torch.utils.checkpoint")
def a_saved_draw_shifts_the_later_ones(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay that reuses a random operation's result does not advance the generator."""
    patch.setattr(selective, "state_behind", lambda tensor: None)


@witness("RNG-20", on="tape", variant="tape")
def a_replay_counts_its_keys(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay folds a number of its own into every key."""
    tape: Any = sys.modules["tape"]
    generator = tape.generator

    def counting(key: int | None) -> Any:
        is_replay = any(isinstance(region, tape.Replay) for region in tape.tape.regions)
        return generator(key + 1 if key is not None and is_replay else key)

    patch.setattr(tape, "generator", counting)
