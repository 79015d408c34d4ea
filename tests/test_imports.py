"""Who imports whom, how modules are named, and what a clause may mention."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterator

import pytest
from running import CHECKOUT

from ckptspec.conformance.backend import Fact
from ckptspec.conformance.clause import CHAPTERS, Clause, registry

LIBRARIES = ("torch", "jax", "jaxlib", "tensorplay", "paddle", "mindspore", "mlx", "tensorflow", "autograd", "keras")
TEST_TOOLS = {"pytest", "_pytest", "xdist", "numpy", "hypothesis", "packaging"}
COMMAND_LINE = {"click", "rich", "jsonschema"}


def files(folder: str) -> list[pathlib.Path]:
    return sorted(p for p in (CHECKOUT / folder).rglob("*.py") if ".tox" not in p.parts)


def imports(path: pathlib.Path) -> Iterator[tuple[str, int]]:
    """Each module that a file imports, anywhere in it, and how many dots stand before it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level


def outside(path: pathlib.Path) -> set[str]:
    """What a file imports that is neither ours nor the standard library's, by top-level name."""
    names = {name.partition(".")[0] for name, _ in imports(path)}
    return names - set(sys.stdlib_module_names) - {"ckptspec"}


def ours(path: pathlib.Path) -> set[str]:
    return {name for name, _ in imports(path) if name.partition(".")[0] == "ckptspec"}


FOLDERS = ("conformance", "adapters", "reference", "tests", "benchmarks")
EVERY_FILE = [p for folder in FOLDERS for p in files(folder)] + [CHECKOUT / "conftest.py"]


@pytest.mark.parametrize("path", EVERY_FILE, ids=lambda p: str(p.relative_to(CHECKOUT)))
def test_every_import_of_ours_is_by_its_one_name(path: pathlib.Path) -> None:
    for name, level in imports(path):
        assert level == 0, "a relative import would load a module twice under `pytest conformance`"
        assert name.partition(".")[0] not in ("conformance", "adapters", "reference"), name


@pytest.mark.parametrize("path", files("conformance"), ids=lambda p: p.name)
def test_the_suite_imports_no_library(path: pathlib.Path) -> None:
    assert outside(path) <= (TEST_TOOLS | COMMAND_LINE if path.parent.name == "command" else TEST_TOOLS)
    assert not any(name.startswith("ckptspec.reference") for name in ours(path))
    if path.name not in ("plan.py", "resolve.py"):  # they look for adapters, and import none
        assert not any(name.startswith("ckptspec.adapters") for name in ours(path))


@pytest.mark.parametrize("path", files("reference"), ids=lambda p: p.name)
def test_the_reference_imports_torch_and_itself(path: pathlib.Path) -> None:
    assert outside(path) <= {"torch", "typing_extensions"}
    assert all(name.startswith("ckptspec.reference") for name in ours(path))


@pytest.mark.parametrize("path", files("adapters"), ids=lambda p: p.name)
def test_adapters_import_the_backend_their_host_and_their_library(path: pathlib.Path) -> None:
    assert outside(path) <= {*LIBRARIES, "numpy"}
    assert all(
        name == "ckptspec.conformance.backend" or name.startswith(("ckptspec.adapters", "ckptspec.reference"))
        for name in ours(path)
    ), ours(path)
    if path.parent.name == "hosts":
        assert not any(name.startswith("ckptspec.reference") for name in ours(path))


def test_no_two_clauses_share_an_id_or_a_name() -> None:
    clauses = registry().values()

    assert len({c.id for c in clauses}) == len({c.name for c in clauses}) == len(clauses)
    for clause in clauses:
        assert re.fullmatch(r"[A-Z]+-\d\d", clause.id)


def test_every_test_function_in_a_chapter_is_a_clause_of_it() -> None:
    stated = {(c.function.__module__, c.name) for c in registry().values()}
    assert {f"test_{chapter}.py" for chapter in CHAPTERS} == {p.name for p in (CHECKOUT / "conformance").glob("test_*")}
    for chapter in CHAPTERS:
        tree = ast.parse((CHECKOUT / "conformance" / f"test_{chapter}.py").read_text())
        written = [n.name for n in tree.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")]
        assert {(f"ckptspec.conformance.test_{chapter}", name) for name in written} <= stated
        assert len(set(written)) == len(written)
    assert all(c.chapter.lower() == c.function.__module__.rpartition("test_")[2] for c in registry().values())


NAMED = re.compile(rf"\b({'|'.join(LIBRARIES)}|pytorch)\b", re.IGNORECASE)


@pytest.mark.parametrize("clause", registry().values(), ids=lambda clause: clause.id)
def test_no_clause_names_a_library(clause: Clause) -> None:
    """Neither in its code nor in its sentence; the source may. A host may bring a module: `under_test.torch`."""
    (function,) = ast.parse(textwrap.dedent(inspect.getsource(clause.function))).body
    assert isinstance(function, ast.FunctionDef)
    body = ast.Module(function.body[1:], [])

    assert not NAMED.search(clause.sentence + clause.not_promised)
    assert not any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(body))
    if Fact.TORCH_NAMES not in clause.needs:
        assert not NAMED.search(ast.unparse(body))


def test_spec_md_is_what_the_clauses_render_to() -> None:
    if importlib.util.find_spec("ckptspec.conformance.spec") is None:
        pytest.skip("there is no renderer yet")
    spec = importlib.import_module("ckptspec.conformance.spec")

    assert spec.PATH.read_text(encoding="utf-8") == spec.render(), "stale: run `python -m ckptspec.conformance.spec`"
