"""Faults in the presence of other processes."""

import dataclasses
import weakref
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Capability, Checkpointer, Region
from ckptspec.witnesses.witness import with_options, with_region, witness


def is_replay() -> bool:
    return torch._C._current_graph_task_id() != -1


@witness("DIST-01", "DIST-04", "DIST-05", "DIST-06", "DIST-09", "DIST-11", "DIST-12")
def one_process_replays_something_else(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """In all processes but the first a replay is given other arguments than forward was."""

    def change(region: Region) -> Region:
        def call(x: torch.Tensor, *args: Any) -> Any:
            return region(x * 2 if is_replay() and torch.distributed.get_rank() else x, *args)

        return call

    return with_region(checkpointer, change)


@witness("DIST-02", variant="reentrant", source="facebookresearch/multimodal#404")
def hooks_fire_once_a_region(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Each region has a backward of its own, with the hooks of the parameters; it claims the contrary."""
    return dataclasses.replace(checkpointer, capabilities=checkpointer.capabilities | {Capability.HOOKS_ONCE})


@witness("DIST-03")
def one_process_replays_ahead(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """With each replay, all processes but the first execute the region before it as well."""
    before: list[tuple[Region, Any]] = []

    def change(region: Region) -> Region:
        def call(*args: Any) -> Any:
            if not is_replay():
                before.append((region, args))
            elif torch.distributed.get_rank():
                with torch.no_grad():
                    other, its = before[0]
                    other(*its)
            return region(*args)

        return call

    return with_region(checkpointer, change)


@witness("DIST-01", "DIST-10", source="pytorch/pytorch#70865")
def a_replay_is_taken_for_a_forward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """With each replay, a replica starts to wait for its gradients anew."""
    replicas = torch.nn.parallel.DistributedDataParallel
    made: weakref.WeakSet[Any] = weakref.WeakSet()
    init = replicas.__init__

    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        made.add(self)

    def change(region: Region) -> Region:
        def call(*args: Any) -> Any:
            if is_replay():
                for replica in made:
                    replica.reducer.prepare_for_backward([])
            return region(*args)

        return call

    patch.setattr(replicas, "__init__", remember)
    return with_region(checkpointer, change)


@witness("DIST-07")
def each_process_draws_afresh(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay draws numbers of its own in each process."""
    return with_options(checkpointer, preserve_rng_state=False)


@witness("DIST-08")
def replays_communicate_twice(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay executes the region a second time."""

    def change(region: Region) -> Region:
        def call(*args: Any) -> Any:
            if is_replay():
                with torch.no_grad():
                    region(*args)
            return region(*args)

        return call

    return with_region(checkpointer, change)
