"""Faults of ambient state."""

from typing import Any

import pytest
import torch
from torch.utils._device import DeviceContext

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import ambient, engine
from ckptspec.witnesses.witness import with_region, witness


def _forget_the_device(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine, "default_device", lambda: None)


@witness("CTX-01", source="pytorch/pytorch#124788")
def the_default_device_is_forgotten(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay has the default device of backward."""
    _forget_the_device(patch)


@witness("CTX-02", variant="reentrant", source="pytorch/pytorch#193922")
def the_reentrant_form_forgets_the_default_device(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay has the default device of backward."""
    _forget_the_device(patch)


@witness("CTX-03", source="pytorch/pytorch#180423")
def the_default_device_is_entered_again(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay enters the very context that is active, which then can no longer be left."""
    enter = ambient.Restored.__enter__

    def entering(self: ambient.Restored) -> None:
        enter(self)
        for mode in [engine._mode_at(i) for i in range(engine.function_modes())]:
            if isinstance(mode, DeviceContext):
                with mode:
                    pass

    patch.setattr(ambient.Restored, "__enter__", entering)


@witness("CTX-04")
def a_replay_has_the_default_dtype_of_forward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """More than is recorded: the default dtype comes back for a replay."""

    def change(region: Any) -> Any:
        dtypes: list[torch.dtype] = []

        def with_dtype(*args: Any, **kwargs: Any) -> Any:
            now = torch.get_default_dtype()
            dtypes.append(now)
            torch.set_default_dtype(dtypes[0])
            try:
                return region(*args, **kwargs)
            finally:
                torch.set_default_dtype(now)

        return with_dtype

    return with_region(checkpointer, change)
