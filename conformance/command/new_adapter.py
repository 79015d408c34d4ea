"""`ckptspec new-adapter`: a file to start an adapter from, and its baseline."""

from __future__ import annotations

import importlib.resources
import pathlib
import re

import click

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import FOLDER
from ckptspec.conformance.command.console import Mistake
from ckptspec.conformance.report.model import write

TEMPLATES = importlib.resources.files("ckptspec.adapters") / "templates"


@click.command("new-adapter")
@click.argument("name")
@click.option(
    "--kind",
    type=click.Choice(["functional", "torch"]),
    default="functional",
    show_default=True,
    help="torch: a function over torch tensors. functional: any other library.",
)
def command(name: str, kind: str) -> None:
    """Write NAME_adapter.py, to be filled in from top to bottom, and NAME.toml, its baseline, into this folder.

    \b
    ckptspec new-adapter mylib
    ckptspec run --adapter=mylib_adapter.py:adapter --baseline=mylib.toml

    The adapter runs as it stands, and says by name what is still to be written. Nothing is overwritten.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", name):
        raise Mistake(f"{name} is no name for an adapter: it is of letters, digits, - and _")
    module = name.replace("-", "_")
    files = {
        pathlib.Path(f"{module}_adapter.py"): _adapter(f"{kind}_template.py"),
        pathlib.Path(f"{module}.toml"): _text("baseline_template.toml"),
    }
    for path in files:
        if path.exists():
            raise Mistake(f"{path} is there already, and is not overwritten")
    for path, text in files.items():
        text = re.sub(r"\bmylib(?=_adapter|\.)|(?<=import )mylib\b", module, text)
        write(path, text.replace("mylib", name))
        click.echo(f"wrote {path}")
    click.echo(f"now: ckptspec run --adapter={module}_adapter.py:adapter --baseline={module}.toml")


def _text(file: str) -> str:
    return (TEMPLATES / file).read_text(encoding="utf-8")


def _adapter(file: str) -> str:
    """A template with all that a host and a checkpointer may have, each in a line that is commented out."""
    text = _text(file)
    for mark, lines in (
        ("operations", [f'"{name}": mylib.{name},' for name in _operations()]),
        ("facts", [f"Fact.{fact.name},  # {fact.value}" for fact in Fact]),
        ("capabilities", [f"Capability.{capability.name},  # {capability.value}" for capability in Capability]),
    ):
        before, found, after = text.partition(f"# <{mark}>\n")
        indent = before.rpartition("\n")[2]
        text = before + f"\n{indent}".join(f"# {line}" for line in lines) + "\n" + after if found else text
    return text


def _operations() -> list[str]:
    """The operations that clauses and drawn programs use."""
    files = [*FOLDER.glob("test_*.py"), FOLDER / "operations.py"]
    used = {name for file in files for name in re.findall(r"\bops\.(\w+)\(", file.read_text(encoding="utf-8"))}
    return sorted(used - {"has"})
