"""Faults of the reentrant form."""

import dataclasses
from typing import Any

import pytest

from ckptspec.conformance.backend import Checkpointer
from ckptspec.reference import engine, errors
from ckptspec.witnesses.witness import witness, wrapping


@witness("REENT-01", "REENT-05", variant="reentrant")
def the_other_form_under_this_name(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The option is accepted and has no effect."""
    return dataclasses.replace(
        checkpointer,
        checkpoint=lambda region, args, kwargs, options: checkpointer.api.checkpoint(
            region, *args, use_reentrant=False, **kwargs, **options
        ),
    )


@witness("REENT-03", variant="reentrant")
def gradients_of_results_are_scaled(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A gradient with respect to a region's result is another one than the program's."""

    def call(checkpoint: Any, *rest: Any) -> Any:
        result = checkpoint(*rest)
        result.register_hook(lambda gradient: 2 * gradient)
        return result

    return wrapping(checkpointer, call)


@witness("REENT-04", variant="reentrant", source="pytorch/pytorch#37874")
def a_refusal_is_not_forgotten(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Once a gradient of chosen arrays was refused, every later backward is refused too."""
    right, refused = engine.backward_takes_all_leaves, []

    def backward_takes_all_leaves() -> bool:
        if not right():
            refused.append(True)
        return not refused

    patch.setattr(engine, "backward_takes_all_leaves", backward_takes_all_leaves)


@witness("REENT-08", variant="reentrant", source="pytorch/pytorch#125155")
def a_refusal_names_no_way_out(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A gradient of chosen arrays is refused without a word of what to do."""
    patch.setattr(errors.ReentrantInputsError, "__init__", lambda self: Exception.__init__(self, "not supported"))
