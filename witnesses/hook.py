"""Faults of hooks."""

import contextlib
from typing import Any

import pytest
import torch

from ckptspec import reference
from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine, nonreentrant
from ckptspec.reference.arguments import Arguments
from ckptspec.witnesses.witness import with_options, with_region, witness, wrapping


@witness("HOOK-01", source="pytorch/pytorch#24005")
def each_region_is_a_backward_of_its_own(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Each region differentiates its replay by a backward of its own, which fires the hooks of what it reads."""
    return wrapping(
        checkpointer,
        lambda checkpoint, region, args, kwargs, options: reference.checkpoint(region, *args, use_reentrant=True),
    )


@witness("HOOK-02", source="InternLM/xtuner#1979")
def arguments_bypass_surrounding_hooks(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Arguments are kept as they are, also where hooks on saved values surround the region."""
    patch.setattr(
        nonreentrant,
        "Arguments",
        lambda args, kwargs, tensors, captured, hooked, nested: Arguments(
            args, kwargs, tensors, captured, False, nested
        ),
    )


@witness("HOOK-03", "FUNC-01")
def the_replay_is_differentiated_too(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The replay differentiates its own graph, as well as that of forward being differentiated."""

    def change(region: Region) -> Region:
        executions = 0

        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal executions
            executions += 1
            result = region(*args, **kwargs)
            if executions > 1:
                wanted = [a for a in args if a.requires_grad]
                torch.autograd.grad(result.sum(), wanted, retain_graph=True)
            return result

        return call

    return with_options(with_region(checkpointer, change), early_stop=False)


@witness("HOOK-04", source="pytorch/pytorch#115255")
def hooks_inside_a_region_are_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """What the region's own hooks should pack is dropped and recomputed like any other value."""
    installed = torch.autograd.graph.saved_tensors_hooks

    def change(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            torch.autograd.graph.saved_tensors_hooks = lambda pack, unpack: contextlib.nullcontext()  # type: ignore
            try:
                return region(*args, **kwargs)
            finally:
                torch.autograd.graph.saved_tensors_hooks = installed  # type: ignore[misc]

        return call

    return with_region(checkpointer, change)


@witness("HOOK-05", source="pytorch/pytorch#190581")
def saved_results_bypass_the_hooks(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Results that a policy saves bypass the surrounding hooks, whatever was asked."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        asked = {k: False if k == "respect_saved_tensors_hooks" else v for k, v in options.items()}
        return checkpoint(region, args, kwargs, asked)

    return wrapping(checkpointer, call)


@witness("HOOK-06")
def the_cause_is_lost(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Any error of a call is replaced by one that says nothing of the cause."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        try:
            return checkpoint(region, args, kwargs, options)
        except RuntimeError:
            raise RuntimeError("checkpointing is not possible") from None

    return wrapping(checkpointer, call)


@witness("HOOK-07")
def hooks_of_a_replay_stay(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The hooks that a replay puts on what it reads stay beside those of the forward."""
    patch.setattr(engine, "hooks_kept", lambda tensors: contextlib.nullcontext())
