"""Faults of randomness."""

import pytest

from ckptspec.conformance.backend import Checkpointer
from ckptspec.witnesses.witness import with_options, witness


@witness("RNG-01", "RNG-07", "RNG-11", source="allenai/OLMo-core#828")
def replay_draws_afresh(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The generator's state is not restored for a replay."""
    return with_options(checkpointer, preserve_rng_state=False)
