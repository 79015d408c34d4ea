"""The group `ckptspec`: finds the subcommands, and tells a mistake in one line, with exit code 2."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
from collections.abc import Iterator
from typing import Any

import click

from ckptspec.conformance.baseline import BaselineError
from ckptspec.conformance.clause import SPEC_REVISION
from ckptspec.conformance.command.console import Mistake
from ckptspec.conformance.report.model import ReportError
from ckptspec.conformance.running.resolve import AdapterError

#: Each is a file of this folder, which has it as `command`.
NAMES = ("run", "clauses", "explain", "diff", "render", "verify", "repro", "new-adapter", "baseline")


@contextlib.contextmanager
def _one_line() -> Iterator[None]:
    """Turn what a user can get wrong into a Mistake."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        asked = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        raise Mistake(error.format_message().rstrip(".") + asked) from None
    except BrokenPipeError:
        raise  # the reader of our output has gone; click ends in silence
    except (AdapterError, BaselineError, ReportError, OSError) as error:
        raise Mistake(str(error)) from None


class _Commands(click.Group):
    """Imports a subcommand when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(NAMES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        module = importlib.import_module(f"ckptspec.conformance.command.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        with _one_line():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with _one_line():
            return super().invoke(ctx)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(
    importlib.metadata.version("ckptspec"), message=f"ckptspec %(version)s, specification revision {SPEC_REVISION}"
)
def ckptspec() -> None:
    """The executable specification of activation checkpointing: run it, read it, and read what came of a run.

    \b
    ckptspec run --adapter=dropin:mylib.checkpoint
    """
