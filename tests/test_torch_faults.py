"""Each entry of torch's baseline has a program that shows it with torch alone, and none without checkpoint."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
from running import CHECKOUT

from ckptspec.conformance import baseline
from ckptspec.conformance.clause import registry

torch = pytest.importorskip("torch", reason="the faults are torch's")
BASELINES = CHECKOUT / "adapters" / "baselines"
THE_FAULTS = "2.13"  # every fault that is listed for cpu is one of this version


def loaded() -> ModuleType:
    """The script, by its path: its folder is no package."""
    spec = importlib.util.spec_from_file_location("torch_faults", BASELINES / "torch_faults.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for it
    spec.loader.exec_module(module)
    return module


script = loaded()
each_fault = pytest.mark.parametrize("fault", script.FAULTS, ids=lambda fault: fault.name)


def entries(version: str) -> list[baseline.Known]:
    return baseline.read(BASELINES / "torch.toml", set(registry()), "cpu", version)


def covers(entry: baseline.Known, fault: Any) -> bool:
    return entry.covers({"clause": fault.clause, "variant": fault.variant, "parameters": fault.case})


@pytest.mark.parametrize(
    "entry", entries(THE_FAULTS), ids=lambda entry: f"{entry.clause} {entry.variant} {entry.cases}"
)
def test_every_entry_has_a_program(entry: baseline.Known) -> None:
    variants = {fault.variant for fault in script.FAULTS if covers(entry, fault)}

    assert variants == ({"non-reentrant", "reentrant"} if entry.variant == "*" else {entry.variant})


@each_fault
def test_every_program_belongs_to_an_entry(fault: Any) -> None:
    assert [entry for entry in entries(THE_FAULTS) if covers(entry, fault)]


@each_fault
def test_the_fault_is_there(fault: Any) -> None:
    version = torch.__version__
    if not any(covers(entry, fault) for entry in entries(version)):
        pytest.skip(f"the baseline lists no such fault for torch {version}")

    is_there, line = fault.run()

    assert is_there, line


@each_fault
def test_without_checkpoint_there_is_no_fault(fault: Any) -> None:
    is_there, line = fault.run(script.plain)

    assert not is_there, line


def test_the_exit_code_says_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["SEQ-04"]) == 1
    assert script.main(["SEQ-04", "--plain"]) == 0
    assert "SEQ-04 reentrant, 0: expected ValueError, observed ValueError -> no fault" in capsys.readouterr().out
    with pytest.raises(SystemExit) as unknown:
        script.main(["SEQ-99"])
    assert unknown.value.code == 2
    assert "SEQ-99" in capsys.readouterr().err


def test_another_exception_is_trouble(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> tuple[object, object]:
        raise OSError("of another kind")

    monkeypatch.setattr(script, "plain", lambda *args, **kwargs: broken())

    assert script.main(["GRAD-05", "--plain"]) == 2
    assert "of another kind" in capsys.readouterr().err
