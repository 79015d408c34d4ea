"""`ckptspec new-adapter`: what is written runs at once, and says by name what is still to be written."""

from __future__ import annotations

import inspect
import pathlib
import re
import sys

import pytest
from invoking import ckptspec, refused
from running import CHECKOUT, Outcome, run

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import Clause, registry

NO_FUZZ = "[!F]*"


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of the test's own, in which it runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def suite(folder: pathlib.Path, *arguments: str) -> Outcome:
    """The suite on the adapter, in the words that `new-adapter` tells."""
    command = [sys.executable, "-m", "pytest", "--pyargs", "ckptspec.conformance", "-p", "no:cacheprovider"]
    return run(
        [*command, "--adapter=my_lib_adapter.py:adapter", "--baseline=my_lib.toml", *arguments],
        folder,
        folder / "reports",
    )


def source(clause: Clause) -> str:
    return inspect.getsource(clause.function)


def edit(folder: pathlib.Path, **parts: str) -> None:
    """Write parts of the adapter: what stands where it says that a part is not written yet."""
    path = folder / "my_lib_adapter.py"
    text = path.read_text()
    for part, code in parts.items():
        before = f'raise NotWritten("{part}")'
        assert before in text
        text = text.replace(before, code)
    path.write_text(text)


def test_two_files_are_written_and_never_overwritten(folder: pathlib.Path) -> None:
    said = ckptspec("new-adapter", "my-lib").stdout

    assert said.splitlines() == [
        "wrote my_lib_adapter.py",
        "wrote my_lib.toml",
        "now: ckptspec run --adapter=my_lib_adapter.py:adapter --baseline=my_lib.toml",
    ]
    before = {path: path.read_text() for path in folder.iterdir()}
    assert refused("new-adapter", "my-lib") == "my_lib_adapter.py is there already, and is not overwritten"
    (folder / "my_lib_adapter.py").unlink()
    assert refused("new-adapter", "my-lib") == "my_lib.toml is there already, and is not overwritten"
    assert not (folder / "my_lib_adapter.py").exists()
    assert (folder / "my_lib.toml").read_text() == before[folder / "my_lib.toml"]


@pytest.mark.parametrize("kind", ["functional", "torch"])
def test_nothing_of_the_template_is_left_and_everything_that_may_be_declared_is_there(
    folder: pathlib.Path, kind: str
) -> None:
    ckptspec("new-adapter", "my-lib", f"--kind={kind}")
    texts = [path.read_text() for path in folder.iterdir()]

    assert not any("mylib" in text or "<capabilities>" in text or "<facts>" in text for text in texts)
    (adapter,) = [text for text in texts if "import" in text]
    assert all(f"# Capability.{c.name},  # {c.value}\n" in adapter for c in Capability)
    used = {name for clause in registry().values() for name in re.findall(r"\bops\.(\w+)\(", source(clause))} - {"has"}
    assert kind == "torch" or all(f'# "{name}": my_lib.{name},\n' in adapter for name in used)
    assert kind == "torch" or all(f"# Fact.{f.name},  # {f.value}\n" in adapter for f in Fact)


@pytest.mark.parametrize("name", ["", "1st", "a/b", "../a", "a b", "a.b", "ä"])
def test_a_name_that_makes_no_module_is_refused(folder: pathlib.Path, name: str) -> None:
    assert "is no name for an adapter" in refused("new-adapter", name)
    assert list(folder.iterdir()) == []


def test_an_adapter_of_nothing_runs_and_names_what_to_write_first(folder: pathlib.Path) -> None:
    ckptspec("new-adapter", "my-lib")

    outcome = suite(folder, "-n1")

    assert outcome.code == 1
    assert "NOT AS EXPECTED: not written yet: array" in outcome.last_line
    assert "Traceback" not in outcome.output
    assert set(outcome.verdicts.values()) == {"N/A"}
    assert outcome.cases["GRAD-01[my-lib-float64]"]["message"] == "not written yet: array"
    assert "does not have" in outcome.cases["RNG-01[my-lib]"]["message"]


def test_what_is_to_be_written_next_is_named_until_all_is_written(folder: pathlib.Path) -> None:
    """Fills the template in with the tape's parts, in its own order."""
    ckptspec("new-adapter", "my-lib")

    edit(
        folder,
        array="return TAPE.array(values)",
        numpy="return TAPE.numpy(array)",
        is_array="return TAPE.is_array(value)",
        ones_like="return TAPE.ones_like(array)",
    )
    path = folder / "my_lib_adapter.py"
    tape = f"import sys\nsys.path.insert(0, {str(CHECKOUT / 'tests')!r})\nimport tape\nTAPE = tape.TapeHost()\n"
    path.write_text(path.read_text().replace("VERSION =", tape + "VERSION =").replace("# Fact.EAGER", "Fact.EAGER"))
    outcome = suite(folder, "-n1", "--clause=GRAD-01")
    assert "not written yet: vjp" in outcome.last_line

    edit(folder, vjp="return TAPE.vjp(fn, *primals)", probe="return TAPE.probe(x, executed)")
    outcome = suite(folder, "-n1", "--clause=GRAD-01")
    assert outcome.errors == ["ERROR: --adapter=my_lib_adapter.py:adapter: my-lib has no operation 'multiply'"]

    path.write_text(re.sub(r'# ("(add|multiply|sin)": )my_lib', r"\1tape", path.read_text()))
    outcome = suite(folder, "-n1", "--clause=GRAD-02")
    assert "has no operation 'tanh'" in outcome.cases["GRAD-02[my-lib]"]["message"]
    path.write_text(path.read_text().replace('Ops("my-lib", OPERATIONS)', 'Ops("my-lib", tape.OPERATIONS)'))
    outcome = suite(folder, "-n1", "--clause=GRAD-0*")
    assert "not written yet: checkpoint" in outcome.last_line
    assert set(outcome.verdicts.values()) == {"N/A"}

    edit(folder, checkpoint="return tape.checkpoint(region, args, kwargs, tape.Options(**options))")
    outcome = suite(folder, "-n1", f"--clause={NO_FUZZ}", "-W", "ignore")
    assert outcome.code == 0, outcome.output
    assert outcome.verdicts["GRAD-01[my-lib-float64]"] == "PASS"
    assert "no option" in outcome.cases["STOP-02[my-lib]"]["message"]
    assert set(outcome.verdicts.values()) <= {"PASS", "N/A", "REFUSED", "NOT_OFFERED", "FAIL"}


def test_an_adapter_over_torch_tensors_runs_at_once_and_says_that_it_is_torch_s(folder: pathlib.Path) -> None:
    pytest.importorskip("torch")
    ckptspec("new-adapter", "my-lib", "--kind=torch")

    outcome = suite(folder, "-n1", "--clause=GRAD-0*", "--clause=SEL-0*")

    assert outcome.code == 0, outcome.output
    assert outcome.verdicts["GRAD-01[my-lib-float64]"] == "PASS"
    assert outcome.report["adapter"]["version"].startswith("not written yet, torch's own ")
    refused_cases = [case for case in outcome.cases.values() if case["verdict"] == "REFUSED"]
    assert any("no option save; there are: preserve_rng_state" in case["message"] for case in refused_cases)


def test_the_template_has_a_place_for_every_method_that_a_host_must_have() -> None:
    from ckptspec.conformance.backend import Host

    text = (CHECKOUT / "adapters" / "templates" / "functional_template.py").read_text()

    assert set(re.findall(r'NotWritten\("(\w+)"\)', text)) == Host.__abstractmethods__ | {"checkpoint"}
