"""Installed, the suite sleeps until it is asked for, works in anybody's repository, and is loaded once."""

from __future__ import annotations

import pathlib
import shutil
import sys

import pytest
from running import CHECKOUT, Outcome, Suite, run

CONFTEST = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--device", default="tpu")
    parser.addoption("--report", action="store_true")

@pytest.fixture
def device(request):
    return request.config.getoption("--device")
"""

TEST = """
def test_their_own_device(device):
    assert device == "tpu"
"""

TAPE = f"{CHECKOUT / 'tests' / 'tape.py'}:adapter"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder of installed packages with ckptspec in it, as a wheel installs it."""
    site = tmp_path_factory.mktemp("site")
    for folder in ("conformance", "adapters"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / folder, site / "ckptspec" / folder, ignore=ignored)
    about = site / "ckptspec-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: ckptspec\nVersion: 0.1.0\n")
    (about / "entry_points.txt").write_text("[pytest11]\nckptspec = ckptspec.conformance.entry\n")
    return site


@pytest.fixture
def theirs(tmp_path: pathlib.Path) -> pathlib.Path:
    """Somebody's repository, with options of its own."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_theirs.py").write_text(TEST)
    return folder


def pytest_in(folder: pathlib.Path, site: pathlib.Path, *arguments: str) -> Outcome:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return run(command, folder, folder / "reports", PYTHONPATH=str(site))


def test_their_own_tests_and_options_are_left_alone(site: pathlib.Path, theirs: pathlib.Path) -> None:
    outcome = pytest_in(theirs, site)
    also = pytest_in(theirs, site, "--device=tpu", "--report", "-n1")

    assert (outcome.code, also.code) == (0, 0), outcome.output + also.output
    assert "1 passed" in outcome.output
    assert "plugins: " in outcome.output
    assert "ckptspec-0.1.0" in outcome.output
    assert "ckptspec:" not in outcome.output


def test_the_suite_adds_no_option_until_it_is_asked_for(site: pathlib.Path, theirs: pathlib.Path) -> None:
    (theirs / "conftest.py").unlink()

    asleep, awake = pytest_in(theirs, site, "--help"), pytest_in(theirs, site, "--help", "--adapter=torch")

    assert "--case-timeout" not in asleep.output
    assert "--case-timeout" in awake.output


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_the_suite_runs_in_their_repository(site: pathlib.Path, theirs: pathlib.Path, workers: str) -> None:
    (theirs / "conftest.py").write_text(CONFTEST.replace('    parser.addoption("--report", action="store_true")\n', ""))

    outcome = pytest_in(
        theirs,
        site,
        "--pyargs",
        "ckptspec.conformance",
        f"--adapter={TAPE}",
        "--device=cpu",
        "--clause=GRAD-*",
        workers,
    )

    assert outcome.code == 0, outcome.output
    assert outcome.last_line.startswith("as expected: ")
    assert "theirs" not in outcome.verdicts
    assert len(outcome.verdicts) > 15
    assert outcome.report["occasion"]["git"] is None
    assert set(outcome.verdicts.values()) <= {"PASS", "N/A"}


def test_the_suite_alone_asks_for_an_adapter(site: pathlib.Path, theirs: pathlib.Path) -> None:
    outcome = pytest_in(theirs, site, "--pyargs", "ckptspec.conformance")

    assert outcome.code == 4
    assert outcome.errors[0].startswith("ERROR: --adapter=NAME is missing; there are: ")


def test_clauses_and_plugin_come_from_one_folder(site: pathlib.Path, tmp_path: pathlib.Path) -> None:
    outcome = Suite(tmp_path / "reports")("--clause=GRAD-01", PYTHONPATH=str(site))

    assert outcome.code == 4
    (line,) = outcome.errors
    assert str(CHECKOUT / "conformance") in line
    assert str(site / "ckptspec" / "conformance") in line


WITHOUT_INSTALL = """
import sys
for name in ("meta_path", "path_hooks", "path"):
    there = getattr(sys, name)
    there[:] = [x for x in there if "__editable__" not in f"{x} {getattr(x, '__module__', '')}"]
"""


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_checkout_needs_no_install(suite: Suite, tmp_path: pathlib.Path, workers: str) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_INSTALL)

    outcome = suite(
        *("--clause=GRAD-*", workers, "-p", "xdist.plugin"),
        PYTHONPATH=str(tmp_path),
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )

    assert outcome.code == 0, outcome.output
    assert outcome.last_line.startswith("as expected: ")


def test_the_suite_is_never_loaded_a_second_time(suite: Suite, tmp_path: pathlib.Path) -> None:
    (tmp_path / "twice.py").write_text(
        f"import sys\nsys.path.insert(0, {str(CHECKOUT)!r})\nimport conformance.clause\n"
    )

    outcome = suite("--clause=GRAD-01", "-n0", "-p", "twice", PYTHONPATH=str(tmp_path))

    assert outcome.code != 0
    assert "the suite was imported a second time, as conformance" in outcome.output
