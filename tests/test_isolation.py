"""A case that ends or hangs its process is found guilty, every other case runs, and the report is whole."""

from __future__ import annotations

import pathlib

import pytest
from controls import KILLERS
from running import CHECKOUT, TAPE, Outcome, Suite

GUILTY = {
    "abort": ("CRASH", "SIGABRT"),
    "segfault": ("CRASH", "SIGSEGV"),
    "exit": ("CRASH", "exit 3"),
    "kill": ("CRASH", "SIGKILL"),
    "hang": ("TIMEOUT", ""),
    "keyboard-interrupt": ("FAIL", "KeyboardInterrupt"),
    "sys-exit": ("FAIL", "SystemExit"),
    "pytest-exit": ("FAIL", "Exit"),
}


def broken(outcome: Outcome) -> dict[str, tuple[str, str]]:
    """The cases that are broken or were not run, with verdict and cause."""
    return {
        name: (case["verdict"], case["signal"] or case["exception"])
        for name, case in outcome.cases.items()
        if case["verdict"] not in ("PASS", "N/A")
    }


@pytest.mark.parametrize(
    ("workers", "chosen"),
    [(["-n1"], list(GUILTY)), (["-n2"], list(GUILTY)), ([], ["abort", "hang", "pytest-exit"])],
    ids=["one worker", "two workers", "by default"],
)
def test_each_way_to_die_has_its_verdict_and_nothing_else_suffers(
    suite: Suite, workers: list[str], chosen: list[str]
) -> None:
    outcome = suite(
        *("--clause=GRAD-0[1-3]", "--case-timeout=6", "-k", " or ".join(chosen), *workers),
        adapter="tests/controls.py:killers",
    )

    assert set(GUILTY) == set(KILLERS)
    assert broken(outcome) == {f"GRAD-01[{name}-float64]": GUILTY[name] for name in chosen}
    assert len(outcome.cases) == len(chosen) * 4  # three clauses, the first with two cases
    assert outcome.code == 1
    assert outcome.last_line.startswith("NOT AS EXPECTED: GRAD-01[")
    assert outcome.last_line.endswith(f"and {len(chosen) - 1} more")


@pytest.mark.parametrize("workers", ["-n1", "-n2"])
def test_a_late_abort_is_traced_to_its_cause(suite: Suite, tmp_path: pathlib.Path, workers: str) -> None:
    xml = tmp_path / "junit.xml"
    outcome = suite("--clause=GRAD-0*", workers, f"--junitxml={xml}", adapter="tests/controls.py:late")

    assert broken(outcome) == {"GRAD-01[late-abort-float64]": ("CRASH", "SIGABRT")}
    message = outcome.cases["GRAD-01[late-abort-float64]"]["message"]
    assert message == "the process ended with SIGABRT after the case had ended"
    assert message in xml.read_text()
    assert outcome.code == 1


@pytest.mark.parametrize("workers", ["-n1", "-n2"])
def test_a_late_abort_of_the_last_case_is_not_lost(suite: Suite, tmp_path: pathlib.Path, workers: str) -> None:
    xml = tmp_path / "junit.xml"
    outcome = suite("--clause=GRAD-01", workers, f"--junitxml={xml}", adapter="tests/controls.py:late")

    assert broken(outcome) == {"GRAD-01[late-abort-float64]": ("CRASH", "SIGABRT")}
    assert "after the case had ended" in xml.read_text()


def test_known_deaths_are_expected(suite: Suite, tmp_path: pathlib.Path) -> None:
    entry = '[[known]]\nclause = "GRAD-01"\ncases = "float64"\nreason = "a control"\n'
    (tmp_path / "known.toml").write_text(
        f'{entry}variant = "abort"\nverdict = "CRASH"\nsignal = "SIGABRT"\n'
        f'{entry}variant = "hang"\nverdict = "TIMEOUT"\n'
        f'{entry}variant = "sys-exit"\nverdict = "FAIL"\nexception = "SystemExit"\nphase = "forward"\n'
    )

    outcome = suite(
        *("--clause=GRAD-01", "--case-timeout=6", "-k", "abort or hang or sys"),
        f"--baseline={tmp_path / 'known.toml'}",
        adapter="tests/controls.py:killers",
    )

    assert outcome.code == 0, outcome.output
    assert outcome.last_line.startswith("as expected: ")
    assert {outcome.cases[name]["expectation"] for name in broken(outcome)} == {"known failure"}
    assert len(broken(outcome)) == 3


def test_the_controller_never_imports_the_implementation(suite: Suite, tmp_path: pathlib.Path) -> None:
    (tmp_path / "noting.py").write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(CHECKOUT / 'tests')!r})\n"
        "from tape import adapter\n"
        f"open({str(tmp_path / 'importers')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    )

    outcome = suite("--clause=GRAD-01", "-n2", adapter=f"{tmp_path / 'noting.py'}:adapter")

    importers = (tmp_path / "importers").read_text().split()
    assert outcome.code == 0, outcome.output
    assert len(importers) >= 2  # the preflight and at least one worker
    assert str(outcome.pid) not in importers


@pytest.mark.parametrize("switch", ["-n0", "--pdb"])
def test_a_run_without_isolation_says_so(suite: Suite, switch: str) -> None:
    outcome = suite("--clause=GRAD-01", switch, adapter=TAPE)

    assert outcome.code == 0
    assert "no isolation" in outcome.output
    assert outcome.report["occasion"]["isolated"] is False


def test_isolation_is_the_default(suite: Suite) -> None:
    outcome = suite("--clause=GRAD-01")

    assert "cpu; isolated" in outcome.output
    assert outcome.report["occasion"]["isolated"] is True
