"""Drawn programs against seeded faults: what counts as found is the fault's doing, and every witness is told of."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from ckptspec.witnesses.fuzz_matrix import caught, render
from ckptspec.witnesses.witness import witnesses


def test_a_wrong_gradient_is_found_and_where() -> None:
    name, catch = caught("arguments_of_regions_are_constants", 10)

    assert name == "arguments_of_regions_are_constants"
    assert catch is not None
    clause, program = catch
    assert clause.startswith("FUZZ-")
    assert 1 <= program <= 10


def test_what_no_program_shows_is_not_found() -> None:
    """A message; and a fault of the implementation that the seeded one is built on is not taken for it."""
    assert caught("stored_names_are_those_of_the_wrapper", 100) == ("stored_names_are_those_of_the_wrapper", None)


def test_the_page_counts_by_chapter_and_tells_of_each() -> None:
    names = ["arguments_of_regions_are_constants", "each_process_draws_afresh", "forward_runs_twice"]
    found = {name: witnesses()[name] for name in names}
    text = render(found, {names[0]: ("FUZZ-01", 1), names[1]: ("FUZZ-02", 30), names[2]: None}, 100)

    assert "- 1 program: 1 (33%)" in text
    assert "- 10 programs: 1 (33%)" in text
    assert "- 100 programs: 2 (67%)" in text
    assert f"| {names[1]} | FUZZ-02 | 30 |" in text
    assert f"- **{names[2]}** ({found[names[2]].fault.__module__.rpartition('.')[2].upper()}): " in text
