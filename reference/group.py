"""Several backward calls that share one replay of each region."""

from __future__ import annotations

from typing import Any

from ckptspec.reference import engine
from ckptspec.reference.errors import GroupNestingError
from ckptspec.reference.frame import Ending


class GraphExecGroup:
    """Within it, each region is replayed at most once over all backward calls, on this thread and its device threads.

    The backward calls must need disjoint saved values, even with retain_graph: GroupOverlapError. Entering the same
    instance again shares its replays (GROUP-06); what they made lives until it is used, or the group or the graph dies
    (GROUP-11). Groups do not nest: GroupNestingError. No effect on the reentrant form (GROUP-07).
    Source: torch.utils.checkpoint.GraphExecGroup.
    """

    def __init__(self) -> None:
        self.key = object()
        self.endings: list[Ending] = []

    def __enter__(self) -> GraphExecGroup:
        active = engine.current_group()
        if active is not None:
            raise GroupNestingError(active)  # GROUP-04
        engine.set_current_group(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        engine.set_current_group(None)  # GROUP-05
