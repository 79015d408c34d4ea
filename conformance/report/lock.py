"""A folder that one run at a time writes to. The lock is on the folder itself: no file is left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
from collections.abc import Iterator

from ckptspec.conformance.report.model import ReportError


@contextlib.contextmanager
def locked(folder: pathlib.Path, *, is_patient: bool = False) -> Iterator[None]:
    """Keep other runs out of the folder.

    Raises ReportError, which names the process that is in it, unless it is patient and waits for that one.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):  # a file system may have no locks
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if is_patient else fcntl.LOCK_NB))
            except BlockingIOError:
                raise ReportError(
                    f"--report: {_holder(handle)} is writing to {folder}; wait for it, or choose --report=DIR"
                ) from None
        yield
    finally:
        os.close(handle)


def _holder(handle: int) -> str:
    """Who has locked a file, in words."""
    number = os.fstat(handle).st_ino
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/locks").read_text().splitlines():
            _, kind, _, _, process, file, *_ = line.split()
            if kind == "FLOCK" and file.endswith(f":{number}"):
                return f"process {process}"
    return "another process"
