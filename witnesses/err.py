"""Faults of errors and of what explains them."""

import contextlib
from collections.abc import Iterator
from typing import Any, NoReturn

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import errors, frame
from ckptspec.witnesses.witness import with_api, with_options, witness, wrapping


def _fill(self: frame.Replay) -> None:
    """Zeros for the values that a replay did not bring, or that do not fit."""
    for weak in self.frame.slots:
        slot = weak()
        if slot is not None and (self.key not in slot.values or slot.values[self.key][0].shape != slot.description[0]):
            tensor = torch.zeros(slot.description[0], dtype=slot.description[1])
            slot.values[self.key] = tensor, tensor._version


@witness("ERR-01")
def a_generator_runs_the_forward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The forward runs inside a generator, which does not let StopIteration pass."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        def steps() -> Iterator[Any]:
            yield checkpoint(region, args, kwargs, options)

        return next(steps())

    return wrapping(checkpointer, call)


@witness("ERR-02", "RNG-05")
def a_failed_replay_is_silent(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """An exception in a replay is swallowed, and zeros stand for what is missing."""
    call = frame.Replay._call

    def calling(self: frame.Replay, args: Any, kwargs: Any) -> None:
        with contextlib.suppress(Exception):
            call(self, args, kwargs)

    patch.setattr(frame.Replay, "_call", calling)
    patch.setattr(frame.Replay, "_judge", _fill)


@witness("ERR-02")
def a_failed_replay_is_an_error_of_checkpointing(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The function's exception in a replay is replaced by one of checkpointing."""
    call = frame.Replay._call

    def calling(self: frame.Replay, args: Any, kwargs: Any) -> None:
        try:
            call(self, args, kwargs)
        except Exception as error:
            raise errors.CheckpointError("the replay failed") from error

    patch.setattr(frame.Replay, "_call", calling)


@witness(
    "DET-01",
    "DET-02",
    "DET-04",
    "DET-07",
    "DET-08",
    "ERR-03",
    "ERR-04",
    "ERR-05",
    "ERR-06",
    "ERR-08",
    "ERR-09",
    "ERR-12",
)
def missing_values_are_zeros(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A replay that differs from forward is not noticed, and zeros stand for what is missing or does not fit."""
    patch.setattr(frame.Replay, "_judge", _fill)


@witness("ERR-03", "ERR-04", "ERR-05", "ERR-12", source="hiyouga/LlamaFactory#6438")
def errors_say_nothing(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Every mismatch is the same RuntimeError, with a text that does not help."""

    def fail(self: frame.Frame, error: errors.CheckpointError) -> NoReturn:
        raise RuntimeError("the replay differs")

    patch.setattr(frame.Frame, "fail", fail)


@witness("ERR-05", "ERR-06")
def debug_is_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """debug=True is accepted and does nothing."""
    return with_options(checkpointer, debug=False)


@witness("ERR-06")
def the_debug_setting_is_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The context manager that switches debug on or off has no effect."""
    return with_api(checkpointer, set_checkpoint_debug_enabled=lambda enabled: contextlib.nullcontext())


@witness("ERR-10", "ERR-11", "FUZZ-15")
def a_failed_replay_is_not_repeated(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """After a replay failed, the next backward takes what there is, and zeros for the rest."""
    run, failed = frame.Replay.run, []

    def running(self: frame.Replay, args: Any, kwargs: Any) -> None:
        if self.frame in failed:
            _fill(self)
            return
        try:
            run(self, args, kwargs)
        except Exception:
            failed.append(self.frame)
            raise

    patch.setattr(frame.Replay, "run", running)
