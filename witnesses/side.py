"""Faults of side effects."""

from typing import Any

import pytest
from torch.autograd.graph import saved_tensors_hooks

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import frame
from ckptspec.witnesses.witness import witness


@witness("SIDE-01", "SIDE-02", "SIDE-04", "DECO-01", "GRAD-13")
def a_replay_runs_twice(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The function is executed twice for each replay."""
    call = frame.Replay._call

    def calling(self: frame.Replay, args: Any, kwargs: Any) -> None:
        with saved_tensors_hooks(lambda x: x, lambda x: x):
            self.frame.function(*args, **kwargs)
        call(self, args, kwargs)

    patch.setattr(frame.Replay, "_call", calling)
