"""Faults of regions in compiled programs."""

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.witnesses.witness import with_options, with_region, witness, wrapping


@witness("COMPILE-01", "COMPILE-06", "COMPILE-12", "COMPILE-15", source="pytorch/pytorch#144035")
def arguments_of_regions_are_constants(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region's first argument is cut off from the graph."""
    return with_region(
        checkpointer, lambda region: lambda x, *args, **kw: region(x.detach().requires_grad_(), *args, **kw)
    )


@witness("COMPILE-02", source="jax-ml/jax#13999")
def compiler_keeps_what_regions_compute(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """In a compiled program a region is a plain call."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        if torch.compiler.is_compiling():
            return region(*args, **kwargs)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("COMPILE-03", source="deepspeedai/DeepSpeed#6811")
def compiled_regions_draw_afresh(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """In a compiled program a replay draws numbers of its own."""
    return with_options(checkpointer, preserve_rng_state=False)


@witness("COMPILE-05", "COMPILE-13", source="pytorch/pytorch#142862")
def compiler_loses_contexts_and_policies(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """In a compiled program a region's contexts, and the policies among them, are lost."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        return checkpoint(region, args, kwargs, {})

    return wrapping(checkpointer, call)


@witness("COMPILE-02", "COMPILE-08", "COMPILE-14", source="pytorch/pytorch#142862")
def regions_are_executed_twice(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Each execution of a region executes it a second time, and forgets the result."""

    def twice(region: Region) -> Region:
        def call(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                region(*args, **kwargs)
            return region(*args, **kwargs)

        return call

    return with_region(checkpointer, twice)


@witness("COMPILE-16", source="pytorch/pytorch#80987")
def keyword_arguments_of_regions_are_constants(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Arrays among a region's keyword arguments are cut off from the graph."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: Any) -> Any:
        return checkpoint(region, args, {k: v.detach() for k, v in kwargs.items()}, options)

    return wrapping(checkpointer, call)
