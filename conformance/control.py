"""The control: a case whose checkpoint is a plain call.

What fails there as well asks for something that a plain call does not do: to replay, to refuse, to hold less, to enter
contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ckptspec.conformance.backend import Checkpointer, Host
from ckptspec.conformance.handles import Checkpoint, Plain
from ckptspec.conformance.observing import Seen
from ckptspec.conformance.under_test import UnderTest


class Control(UnderTest):
    """A case's view of no implementation at all. It replays nothing, so no run needs a replay."""

    def attempt(self, *program: Any, replays: int = 1, **how: Any) -> Seen:
        return super().attempt(*program, replays=0, **how)

    def explore(self, *asked: Any, **how: Any) -> None:
        """Drawn programs are compared with their plain runs, which they would be."""

    def _handle(self) -> Plain | Checkpoint:
        return Plain()


def label(call: Callable[[UnderTest], None], host: Host, checkpointer: Checkpointer) -> str:
    """The label of the assertion that fails in the control; '' if none does."""
    host.restore()
    try:
        call(Control(host, checkpointer))
    except AssertionError as error:
        return str(getattr(error, "label", "")) or (str(error).splitlines() or [""])[0]
    except BaseException:
        return ""  # whatever else happens there, the case itself did not end so
    return ""
