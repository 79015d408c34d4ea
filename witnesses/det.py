"""Faults of the determinism check."""

import pytest

from ckptspec.conformance.backend import Checkpointer
from ckptspec.witnesses.witness import with_options, witness


@witness("DET-01", "ERR-03", "ERR-12")
def metadata_are_never_compared(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The determinism check is always off: only the number of saved values is compared."""
    return with_options(checkpointer, determinism_check="none")


@witness("DET-03", "DET-09", source="allenai/OLMo-core#713")
def metadata_are_always_compared(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The determinism check is always the default one."""
    return with_options(checkpointer, determinism_check="default")


@witness("DET-05")
def values_are_always_compared(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """More than is recorded: the values of a replay are always compared, too."""
    return with_options(checkpointer, determinism_check="values")
