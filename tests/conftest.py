"""What every test may ask for."""

from __future__ import annotations

import pathlib

import pytest
from running import Suite


@pytest.fixture
def suite(tmp_path: pathlib.Path) -> Suite:
    """Runs the suite in a process of its own; its reports go to `tmp_path / "reports"`."""
    return Suite(tmp_path / "reports")
