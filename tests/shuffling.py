"""A pytest plugin for the inner runs: `-p shuffling` runs the cases in an order drawn from the environment's SEED."""

from __future__ import annotations

import os
import random

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    random.Random(os.environ["SEED"]).shuffle(items)
