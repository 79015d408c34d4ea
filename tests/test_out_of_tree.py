"""Somebody else's backend, in a package of its own, gates on the core profile in its own CI, without torch.

The environment has what ckptspec's wheel asks for and nothing else. What is run in it is what the README's
"Gate your backend in CI" says.
"""

from __future__ import annotations

import importlib.metadata
import pathlib
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import pytest
from packaging.requirements import Requirement
from running import CHECKOUT, Outcome, environment, run

OFFLINE = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_DEPS": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
"""For pip, so that it downloads nothing: the environment already has what there is to build and to install with."""

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "tapelib"
version = "1.0"
dependencies = ["numpy"]

[project.optional-dependencies]
test = ["ckptspec"]

[project.entry-points."ckptspec.adapters"]
tapelib = "tapelib.adapter:adapter"

[tool.setuptools]
packages = ["tapelib"]
package-dir = { "" = "src" }

[tool.pytest.ini_options]
testpaths = ["tests"]
"""

ADAPTER = """
import sys

from tapelib.tape import adapter

assert "torch" not in sys.modules
"""

CONFTEST = """
import pytest

def pytest_addoption(parser):
    parser.addoption("--device", default="cpu", choices=["cpu", "tpu"])

@pytest.fixture
def device(request):
    return request.config.getoption("--device")
"""

TESTS = """
import numpy as np
import pytest
from tapelib import tape

def test_a_square(device):
    assert device == "cpu"
    np.testing.assert_array_equal(tape.square(tape.Variable([1.0, 2.0])).values, [1.0, 4.0])

def test_without_torch():
    with pytest.raises(ImportError):
        import torch
"""

KNOWN = """
[[known]]
clause = "GRAD-01"
verdict = "WRONG"
label = "gradient"
reason = "what is saved comes back too large"
link = "https://example.org/tapelib/issues/1"
"""

GATE = (
    "--pyargs ckptspec.conformance --adapter=tapelib --profile=core --baseline=tests/ckptspec.toml"
    " --summary=summary.md --junitxml=ckptspec.xml"
).split()


def needed(name: str, found: dict[str, importlib.metadata.Distribution]) -> dict[str, importlib.metadata.Distribution]:
    """A distribution that is installed here, and all that it asks for."""
    if name.lower() not in found:
        found[name.lower()] = importlib.metadata.distribution(name)
        for text in found[name.lower()].requires or []:
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                needed(requirement.name, found)
    return found


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Their repository, with an environment in which ckptspec and their package are installed."""
    folder = tmp_path_factory.mktemp("tapelib")
    for path, text in {
        "pyproject.toml": PYPROJECT,
        "conftest.py": CONFTEST,
        "tests/test_tape.py": TESTS,
        "tests/ckptspec.toml": "",
        "src/tapelib/__init__.py": "",
        "src/tapelib/adapter.py": ADAPTER,
        "src/tapelib/tape.py": (CHECKOUT / "tests" / "tape.py").read_text(),
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (site,) = folder.glob("venv/lib/*/site-packages")
    for distribution in needed("setuptools", needed("ckptspec", {})).values():
        if distribution.name != "ckptspec":
            for top in {
                file.parts[0] for file in distribution.files or [] if file.parts[0] not in ("..", "__pycache__")
            }:
                (site / top).symlink_to(distribution.locate_file(top))

    # A copy: a build leaves its own folder behind, and another one may be under way.
    ignored = shutil.ignore_patterns(".git", ".tox", ".venv*", "*.egg-info", "__pycache__", "build", "reports", "tests")
    shutil.copytree(CHECKOUT, folder / "ckptspec", ignore=ignored)
    pip = [sys.executable, "-m", "pip", f"--python={folder / 'venv' / 'bin' / 'python'}", "--quiet"]
    for arguments in (
        ["wheel", "./ckptspec", "--wheel-dir=wheels"],
        ["install", "--find-links=wheels", "ckptspec", "."],
    ):
        subprocess.run([*pip, *arguments], cwd=folder, env=environment(**OFFLINE), check=True)
    return folder


def pytest_in(theirs: pathlib.Path, *arguments: str) -> Outcome:
    for name in ("summary.md", "ckptspec.xml"):
        (theirs / name).unlink(missing_ok=True)
    command = [str(theirs / "venv" / "bin" / "python"), "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    return run(command, theirs, theirs / "reports")


def test_their_tests_and_the_gate_pass(theirs: pathlib.Path) -> None:
    own, gate = pytest_in(theirs), pytest_in(theirs, *GATE)

    assert own.code == 0, own.output
    assert "2 passed" in own.output
    assert gate.code == 0, gate.output
    assert gate.last_line.startswith("as expected: profile core: ")
    assert "no isolation" not in gate.output
    assert set(gate.verdicts.values()) == {"PASS"}
    assert gate.report["adapter"]["asked"] == "tapelib"
    assert gate.report["profiles"]["tape"]["core"] is True
    assert (theirs / "summary.md").read_text().startswith("## ckptspec: tape 1, cpu\n\n**as expected: profile core: ")
    xml = ElementTree.parse(theirs / "ckptspec.xml")
    assert len(list(xml.iter("testcase"))) == len(gate.cases)


def test_a_wrong_gradient_fails_the_gate(theirs: pathlib.Path) -> None:
    (path,) = theirs.glob("venv/lib/*/site-packages/tapelib/tape.py")
    right = path.read_text()
    assert "self.found[i] = values\n" in right
    path.write_text(right.replace("self.found[i] = values\n", "self.found[i] = values * 1.1\n"))

    gate = pytest_in(theirs, *GATE)
    path.write_text(right)

    assert gate.code == 1
    assert gate.last_line.startswith("NOT AS EXPECTED: API-11[tape-nested] WRONG (gradient[0]: ")
    assert gate.report["profiles"]["tape"]["core"] is False


def test_a_known_failure_that_is_gone_fails_the_gate(theirs: pathlib.Path) -> None:
    (theirs / "tests" / "ckptspec.toml").write_text(KNOWN)

    gate = pytest_in(theirs, *GATE)
    (theirs / "tests" / "ckptspec.toml").write_text("")

    assert gate.code == 1
    assert gate.last_line == (
        "NOT AS EXPECTED: GRAD-01[tape-float32] PASS; the baseline still expects WRONG gradient and 1 more"
    )
