"""Faults of early stop."""

from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import frame, settings
from ckptspec.witnesses.witness import with_options, witness


@witness("STOP-01", "STOP-03", "STOP-05")
def replays_run_to_the_end(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Early stop is always off."""
    return with_options(checkpointer, early_stop=False)


@witness("STOP-02", "STOP-08")
def replays_always_stop(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Early stop can't be switched off."""
    return with_options(checkpointer, early_stop=True)


@witness("STOP-03", "STOP-04")
def the_option_wins_over_the_setting(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The context manager that overrides early stop has no effect."""
    patch.setattr(settings.Options, "resolved", lambda self: self)


@witness("STOP-04")
def the_setting_is_read_in_backward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay asks for the setting that holds around backward."""
    run = frame.Replay.run

    def running(self: frame.Replay, *args: Any) -> None:
        setting = settings._early_stop.get()
        self.frame.early_stop = True if setting is None else setting
        run(self, *args)

    patch.setattr(frame.Replay, "run", running)


@witness("STOP-06", source="pytorch/pytorch#96866")
def the_end_of_a_replay_is_an_exception(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay is ended by an exception that a function's `except Exception` sees."""

    class Stop(RuntimeError):
        def __init__(self, replay: object) -> None:
            super().__init__("the end")
            self.replay = replay

    patch.setattr(frame, "Stop", Stop)


@witness("STOP-09", "GRAD-01", "FUZZ-04")
def replays_stop_one_value_too_early(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Where replays end early, the last value is missing and taken to be zero."""
    unpack = frame.Frame.unpack

    def early(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        value = unpack(self, slot)
        is_last = slot.index == len(self.slots) - 1
        return torch.zeros_like(value) if self.early_stop and is_last else value

    patch.setattr(frame.Frame, "unpack", early)


@witness("STOP-10", source="pytorch/pytorch#193671")
def replays_stop_inside_an_operation(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay ends at the last save, also if the operation has yet to fill the buffer that it saved."""
    pack = frame.Frame.pack

    def saving(self: frame.Frame, tensor: torch.Tensor) -> Any:
        slot = pack(self, tensor)
        self.filling = False
        return slot

    patch.setattr(frame.Frame, "pack", saving)


@witness("STOP-11", "DET-01", "DET-02")
def replays_are_not_compared(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Nothing compares what a replay saved with what forward saved."""
    take = frame.Frame.unpack

    def any_value(self: frame.Frame, slot: frame.Slot) -> torch.Tensor:
        try:
            return take(self, slot)
        except KeyError:  # the replay saved fewer values
            return torch.zeros(slot.description[0], dtype=torch.float64)

    patch.setattr(frame.Frame, "unpack", any_value)
    patch.setattr(frame.Replay, "_judge", lambda self: None)


@witness("STOP-12")
def the_setting_is_one_for_the_process(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The context manager that overrides early stop changes it for all threads."""

    class Shared:
        def __init__(self) -> None:
            self.value: bool | None = None

        def get(self) -> bool | None:
            return self.value

        def set(self, value: bool | None) -> bool | None:
            self.value, before = value, self.value
            return before

        def reset(self, before: bool | None) -> None:
            self.value = before

    patch.setattr(settings, "_early_stop", Shared())
