"""The specification does not shrink unnoticed, and asks for nothing that nobody has."""

from __future__ import annotations

import pytest

from ckptspec.conformance import manifest
from ckptspec.conformance.clause import FOLDER, registry
from ckptspec.conformance.left_out import LEFT_OUT
from ckptspec.conformance.report import model

CHECKOUT = FOLDER.parent
BEFORE = {"GRAD-01": {"level": "MUST", "cases": 2}}


def test_the_committed_manifest_is_current() -> None:
    assert manifest.committed() == manifest.current(), "run `tox -e spec`"


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ({}, "GRAD-01 is gone"),
        ({"GRAD-01": {"level": "SHOULD", "cases": 2}}, "GRAD-01 was MUST and is SHOULD"),
        ({"GRAD-01": {"level": "MUST", "cases": 1}}, "GRAD-01 had 2 cases and has 1"),
    ],
)
def test_what_shrinks_needs_a_line_in_the_changelog(after: manifest.Manifest, said: str) -> None:
    (line,) = manifest.shrinkage(BEFORE, after, "- GRAD-011 is new.")
    assert line == f"{said}, and CHANGELOG.md does not name it"
    assert manifest.shrinkage(BEFORE, after, "- GRAD-01 changed.") == []


def test_what_grows_needs_none() -> None:
    after = {"GRAD-01": {"level": "MUST", "cases": 3}, "GRAD-02": {"level": "MAY", "cases": 1}}
    assert manifest.shrinkage(BEFORE, after, "") == []


def test_every_capability_that_a_clause_tests_is_declared_by_somebody() -> None:
    reports = [model.load(path) for path in (CHECKOUT / "reports").glob("*/*/report.json")]
    declared = {name for report in reports for names in report["adapter"]["variants"].values() for name in names}
    tested = {capability.name for clause in registry().values() for capability in clause.tests}
    assert tested <= declared, f"nobody declares {sorted(tested - declared)}"


def test_what_is_left_out_is_no_clause() -> None:
    assert not LEFT_OUT.keys() & registry().keys()
