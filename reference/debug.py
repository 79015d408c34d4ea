"""`debug=True`: the operators of forward and replay, and where in the user's code they were called."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ckptspec.reference.engine import DispatchMode
from ckptspec.reference.errors import CheckpointError, ReplayMismatchError

INTERNAL = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


class _Recorder(DispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[tuple[str, list[str]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        frames = [f for f in traceback.extract_stack() if not f.filename.startswith(INTERNAL)]
        stack = [f"{f.filename}:{f.lineno}:{f.name}" for f in frames]
        self.rows.append((f"{_short(out)} = {func}({', '.join(map(_short, args))})", stack))
        return out


class Log:
    """The operators of one region: of its forward, and of its last replay (ERR-05, ERR-07)."""

    def __init__(self) -> None:
        self.forward, self.replay = _Recorder(), _Recorder()

    def of_forward(self) -> AbstractContextManager[Any]:
        return self.forward

    @contextmanager
    def of_replay(self) -> Iterator[None]:
        self.replay.rows.clear()
        with self.replay:
            yield

    def explain(self, error: CheckpointError) -> CheckpointError:
        """The same error with the logs above it. Differences in detach calls are checkpoint's own."""
        parts = ["An error happened in a checkpointed region with debug=True. What ran, oldest first:\n"]
        for title, rows in (("original forward", self.forward.rows), ("replay (recomputation)", self.replay.rows)):
            parts.append(f"---- stack traces of the operators of the {title}")
            parts += [f"{row}\n    " + "\n    ".join(stack) for row, stack in rows]
        for title, rows in (("original forward", self.forward.rows), ("replay (recomputation)", self.replay.rows)):
            parts.append(f"\n---- operations executed during the {title}")
            parts += [row for row, _ in rows]
        kind = ReplayMismatchError if isinstance(error, ReplayMismatchError) else CheckpointError
        return kind("\n".join(parts) + f"\n\n---- the error\n{error}")


def _short(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_short, value))}]"
    return repr(value) if isinstance(value, int | float | str | bool | type(None)) else type(value).__name__
