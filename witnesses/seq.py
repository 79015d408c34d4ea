"""Faults of sequences."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.witnesses.witness import witness

Sequential = Callable[[Iterable[Region], int, tuple[Any, ...], dict[str, Any]], Any]


def _with(
    checkpointer: Checkpointer,
    call: Callable[[Sequential, Iterable[Region], int, tuple[Any, ...], dict[str, Any]], Any],
) -> Checkpointer:
    """The checkpointer with `call(sequential, functions, segments, inputs, options)` in front of `sequential`."""
    right = checkpointer.sequential
    assert right is not None
    return dataclasses.replace(
        checkpointer,
        sequential=lambda functions, segments, inputs, options: call(right, functions, segments, inputs, options),
    )


@witness("SEQ-01", "SEQ-09")
def segments_overlap(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The last function of a segment is run again as the first of the next one."""

    def call(right: Sequential, functions: Iterable[Region], segments: int, inputs: Any, options: Any) -> Any:
        chain, (value,) = list(functions), inputs
        size = len(chain) // segments
        for i in range(segments):
            value = right(chain[max(i * size - 1, 0) : (i + 1) * size], 2, (value,), options)
        return value

    return _with(checkpointer, call)


@witness("SEQ-02", "SEQ-03")
def the_last_segment_is_checkpointed_too(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Every function is a region of its own, the last ones included."""

    def call(right: Sequential, functions: Iterable[Region], segments: int, inputs: Any, options: Any) -> Any:
        (value,) = inputs
        for function in functions:
            value = checkpointer.checkpoint(function, (value,), {}, options)
        return value

    return _with(checkpointer, call)


@witness("SEQ-04")
def any_number_of_segments_is_accepted(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """An impossible number of segments is taken for one segment."""

    def call(right: Sequential, functions: Iterable[Region], segments: int, inputs: Any, options: Any) -> Any:
        chain = list(functions)
        return right(chain, segments if 1 <= segments <= len(chain) else 1, inputs, options)

    return _with(checkpointer, call)


@witness("SEQ-05")
def further_inputs_are_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Inputs beyond the first are dropped, and without any input the sequence is not run."""
    return _with(
        checkpointer,
        lambda right, functions, segments, inputs, options: (
            right(functions, segments, inputs[:1], options) if inputs else None
        ),
    )


@witness("SEQ-06", "SEQ-10")
def options_are_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A sequence ignores the options that it is given, and never restores the generator."""
    return _with(
        checkpointer,
        lambda right, functions, segments, inputs, options: right(
            functions, segments, inputs, {"preserve_rng_state": False}
        ),
    )


@witness("SEQ-08")
def an_empty_sequence_is_an_error(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The length of a segment of no functions is taken for a step."""

    def call(right: Sequential, functions: Iterable[Region], segments: int, inputs: Any, options: Any) -> Any:
        chain = list(functions)
        range(0, len(chain), len(chain) // segments)
        return right(chain, segments, inputs, options)

    return _with(checkpointer, call)


@witness("SEQ-09")
def a_module_container_is_one_function(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A container of modules is called as a whole, in one segment."""

    def call(right: Sequential, functions: Iterable[Region], segments: int, inputs: Any, options: Any) -> Any:
        with contextlib.suppress(TypeError):
            hash(functions)
            return right([functions], 1, inputs, options)  # type: ignore[list-item]
        return right(functions, segments, inputs, options)

    return _with(checkpointer, call)
