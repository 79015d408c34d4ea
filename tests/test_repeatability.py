"""The same run gives the same verdicts: again, in any order, with any number of workers."""

from __future__ import annotations

import pathlib

import pytest
from running import CHECKOUT, Outcome, Suite, once

ADAPTERS = ["tests/tape.py:adapter", "tests/controls.py:controls"]


def in_order(adapter: str, folder: pathlib.Path) -> Outcome:
    return Suite(folder)("-n0", "--tb=native", *some(adapter), adapter=adapter)


def some(adapter: str) -> list[str]:
    """All clauses for the tape; a chapter or two, where nearly all fail, for the controls."""
    return [] if adapter.startswith("tests/tape") else ["--clause=GRAD-*", "--clause=STOP-*", "--clause=DET-*"]


@pytest.fixture(scope="module", params=ADAPTERS, ids=["tape", "controls"])
def first(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Outcome]:
    adapter: str = request.param
    name = f"in-order-{pathlib.Path(adapter.partition(':')[0]).stem}"
    return adapter, once(tmp_path_factory, name, lambda folder: in_order(adapter, folder))


@pytest.mark.parametrize(("workers", "seed"), [("-n0", "1"), ("-n1", "2"), ("-n2", "3"), ("-n4", "4")])
def test_verdicts_do_not_depend_on_order_or_workers(
    suite: Suite, first: tuple[str, Outcome], workers: str, seed: str
) -> None:
    adapter, expected = first

    again = suite(
        *(workers, "--tb=native", "-p", "shuffling", *some(adapter)),
        adapter=adapter,
        PYTHONPATH=str(CHECKOUT / "tests"),
        SEED=seed,
    )

    assert again.verdicts == expected.verdicts
    assert again.report["footer"] == expected.report["footer"]
    assert list(again.report["timing"]["cases"]) == list(expected.report["timing"]["cases"])


def test_the_order_is_really_another(suite: Suite) -> None:
    orders = {
        tuple(
            line
            for line in suite(
                *("-n0", "-v", "--clause=GRAD-0*", "-p", "shuffling"), PYTHONPATH=str(CHECKOUT / "tests"), SEED=seed
            ).output.splitlines()
            if "PASSED" in line
        )
        for seed in "12"
    }

    assert len(orders) == 2
