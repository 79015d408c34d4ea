"""A clause or a witness that is written wrongly is refused with one line that names it."""

from __future__ import annotations

import pytest

from ckptspec.conformance import clause as clause_module
from ckptspec.conformance.backend import Checkpointer, MissingFact, Ops
from ckptspec.conformance.clause import MUST, ClauseError, clause, registry
from ckptspec.witnesses import kill_matrix
from ckptspec.witnesses.witness import Witness


def good(under_test: object) -> None:
    """It holds.

    Source: nowhere.
    """


def without_docstring(under_test: object) -> None: ...


def without_source(under_test: object) -> None:
    """It holds."""


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    registry()
    monkeypatch.setattr(clause_module, "_registry", dict(clause_module._registry))


def test_an_id_is_used_once() -> None:
    with pytest.raises(ClauseError, match=r"GRAD-01 \(good\): id or name is taken by GRAD-01"):
        clause("GRAD-01", MUST)(good)


def test_a_name_is_used_once() -> None:
    clause("GRAD-98", MUST)(good)
    with pytest.raises(ClauseError, match=r"GRAD-99 \(good\): id or name is taken by GRAD-98"):
        clause("GRAD-99", MUST)(good)


def test_a_clause_has_a_sentence_and_a_source() -> None:
    with pytest.raises(ClauseError, match=r"GRAD-98 \(without_docstring\): the docstring has no normative sentence"):
        clause("GRAD-98", MUST)(without_docstring)
    with pytest.raises(ClauseError, match=r"GRAD-98 \(without_source\): the docstring has no 'Source:'"):
        clause("GRAD-98", MUST)(without_source)


def _fault(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Nothing is wrong."""


def test_a_witness_names_clauses_and_a_must_has_a_witness() -> None:
    found = {"_fault": Witness(_fault, ("GRAD-01", "NOPE-01"), "reference", "non-reentrant", "")}
    problems = kill_matrix.check(found, {id: c for id, c in registry().items() if id in ("GRAD-01", "GRAD-02")})
    assert problems == ["_fault names NOPE-01, which is no clause", "GRAD-02 is a MUST and has no witness"]


def test_an_absent_operation_is_named() -> None:
    with pytest.raises(MissingFact, match="little has no operation 'sin'"):
        _ = Ops("little", {}).sin
