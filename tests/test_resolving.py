"""From `--adapter=NAME` to an adapter: the five forms of NAME."""

from __future__ import annotations

import hashlib
import importlib.metadata
import pathlib
import sys
from typing import Any

import pytest

from ckptspec.conformance.backend import Adapter
from ckptspec.conformance.running import resolve
from ckptspec.conformance.running.resolve import AdapterError, Source

FILE = """
from ckptspec.conformance.backend import Adapter
mine = adapter = Adapter("mine", "1", None)
number = 3
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder with an adapter in a file and one in a package; what is imported from it is forgotten afterwards."""
    (tmp_path / "in_file.py").write_text(FILE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "module.py").write_text(FILE)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("in_file", "package", "package.module"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_name_of_ours_is_a_file_in_adapters() -> None:
    assert resolve.names()["torch"] == "ckptspec.adapters.torch_adapter:adapter"
    assert resolve.find("torch", pathlib.Path()) == Source("torch", "ckptspec.adapters.torch_adapter")


def test_an_entry_point_is_a_name_and_ours_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(**chosen: str) -> list[importlib.metadata.EntryPoint]:
        assert chosen == {"group": "ckptspec.adapters"}
        return [
            importlib.metadata.EntryPoint("theirs", "their.module:what", "ckptspec.adapters"),
            importlib.metadata.EntryPoint("torch", "not.this:one", "ckptspec.adapters"),
        ]

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)

    assert resolve.find("theirs", pathlib.Path()) == Source("theirs", "their.module", "what")
    assert resolve.find("torch", pathlib.Path()).module == "ckptspec.adapters.torch_adapter"
    with pytest.raises(AdapterError, match=r"there are: .*theirs.*torch"):
        resolve.find("other", pathlib.Path())


@pytest.mark.parametrize(
    "asked", ["in_file.py:mine", "./in_file.py:mine", "package/module.py:mine", "{folder}/in_file.py:mine"]
)
def test_a_path_is_taken_from_the_directory_of_invocation(folder: pathlib.Path, asked: str) -> None:
    source = resolve.find(asked.format(folder=folder), folder)

    assert source.sha256 == hashlib.sha256(FILE.encode()).hexdigest()
    assert isinstance(resolve.load(source), Adapter)
    assert sys.path[0] == source.folder


@pytest.mark.parametrize("asked", ["in_file:mine", "package.module:mine"])
def test_a_dotted_name_is_found_in_the_directory_of_invocation(folder: pathlib.Path, asked: str) -> None:
    source = resolve.find(asked, folder)

    assert source.sha256 == ""
    assert resolve.load(source).name == "mine"


def test_a_dropin_is_a_module_or_a_file(folder: pathlib.Path) -> None:
    dotted, file = resolve.find("dropin:package.module", folder), resolve.find("dropin:in_file.py", folder)

    assert (dotted.module, dotted.is_dropin, dotted.sha256) == ("package.module", True, "")
    assert (file.module, file.is_dropin, len(file.sha256)) == ("in_file", True, 64)


def test_a_dropin_is_loaded_without_an_adapter(folder: pathlib.Path) -> None:
    pytest.importorskip("torch")
    (folder / "in_file.py").write_text("from torch.utils.checkpoint import *\n__version__ = '7'\n")

    adapter = resolve.load(resolve.find("dropin:in_file.py", folder))

    assert (adapter.name, adapter.version) == ("in_file", "7")
    assert set(adapter.variants) == {"non-reentrant", "reentrant"}


def test_find_imports_nothing(folder: pathlib.Path) -> None:
    (folder / "in_file.py").write_text("raise AssertionError('imported')")
    before = set(sys.modules)

    resolve.find("in_file.py:adapter", folder)
    resolve.find("in_file:adapter", folder)
    resolve.find("dropin:in_file.py", folder)

    assert set(sys.modules) == before


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("nowhere.py:adapter", "there is no file"),
        ("dropin:nowhere.py", "there is no file"),
        ("dropin:", "names no module"),
        ("nothing", "no adapter of that name"),
        ("", "no adapter of that name"),
    ],
)
def test_what_cannot_be_found_is_one_line(folder: pathlib.Path, asked: str, says: str) -> None:
    with pytest.raises(AdapterError, match=says) as caught:
        resolve.find(asked, folder)

    assert str(caught.value).startswith(f"--adapter={asked}")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("in_file.py:number", "in_file:number is no Adapter but int"),
        ("in_file.py:none", "has no attribute 'none'"),
        ("absent.module:adapter", "importing absent.module raises ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(folder: pathlib.Path, asked: str, says: str) -> None:
    with pytest.raises(AdapterError, match=says) as caught:
        resolve.load(resolve.find(asked, folder))

    assert len(str(caught.value).splitlines()) == 1


def test_a_source_travels_between_processes(folder: pathlib.Path) -> None:
    source = resolve.find("in_file.py:mine", folder)
    sent: dict[str, Any] = source.to_json()

    assert Source(**sent) == source
