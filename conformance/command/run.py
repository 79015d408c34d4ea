"""`ckptspec run`: the suite on an implementation, by pytest in a process of its own, which `following.py` shows."""

from __future__ import annotations

import fnmatch
import pathlib
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import click

from ckptspec.conformance.clause import registry
from ckptspec.conformance.command import progress
from ckptspec.conformance.command.console import Mistake, nearest
from ckptspec.conformance.command.following import follow
from ckptspec.conformance.plugin import OPTIONS
from ckptspec.conformance.running import resolve


@click.command()
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[-- PYTEST ARGUMENTS]")
@click.pass_context
def command(ctx: click.Context, /, arguments: tuple[str, ...], **given: Any) -> None:
    """Run the suite on an implementation, and say whether all is as expected; what follows `--` goes to pytest.

    \b
    ckptspec run --adapter=dropin:mylib.checkpoint
    ckptspec run --adapter=mylib_adapter.py:adapter --clause='RNG-*' -- -n0 --pdb

    Exit code: pytest's. 0: as expected; 1: not; 2: interrupted, or a mistake told here; 4: a mistake told by pytest.
    """
    _check(given)
    chosen = [f"{name}={text}" for name in OPTIONS for text in _texts(given[_parameter(name)])]
    pytest = [sys.executable, "-m", "pytest", "--pyargs", "ckptspec.conformance", "-p", progress.__name__]
    if "--pdb" in arguments:  # a debugger needs the terminal for itself
        ctx.exit(_code(subprocess.run([*pytest, *chosen, *arguments], check=False).returncode))
    quiet = ["-q", "--no-header", "-o", "console_output_style=classic"]
    ctx.exit(_code(follow([*pytest, *quiet, *chosen, *arguments])))


def _parameter(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _options() -> Iterator[click.Option]:
    """The suite's options, in click's words. What is not given is left to the suite."""
    for name, settings in OPTIONS.items():
        yield click.Option(
            [name],
            help=settings["help"][0].upper() + settings["help"][1:] + ".",
            metavar=settings.get("metavar"),
            type=settings.get("type"),
            multiple=settings.get("action") == "append",
            required=name == "--adapter",
        )


command.params[:0] = _options()


def _texts(value: Any) -> Iterable[Any]:
    if value is None:
        return ()
    return value if isinstance(value, tuple) else (value,)


def _check(given: dict[str, Any]) -> None:
    """Names that can be told from here are, with those that are near."""
    adapter, adapters = given["adapter"], resolve.names()
    if ":" not in adapter and adapter not in adapters:
        there = f"{nearest(adapter, adapters)}; there are: {', '.join(sorted(adapters))}"
        raise Mistake(f"there is no adapter {adapter}{there}")
    resolve.find(adapter, pathlib.Path.cwd())
    for glob in given["clause"]:
        if not fnmatch.filter(registry(), glob):
            raise Mistake(f"no clause matches {glob}{nearest(glob, registry())}")


def _code(returned: int) -> int:
    """A process's exit code; of one that a signal ended, what a shell says."""
    return returned if returned >= 0 else 128 - returned
