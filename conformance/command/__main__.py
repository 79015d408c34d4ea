"""What `ckptspec` and `python -m ckptspec.conformance.command` start."""

from __future__ import annotations

import io
import sys


def main() -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without our characters shows others, and no traceback
    try:
        from ckptspec.conformance.command.group import ckptspec
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in ("click", "rich"):
            raise
        print(f"ckptspec: {missing} is not installed: pip install 'ckptspec[cli]'", file=sys.stderr)
        return 2
    ckptspec(prog_name="ckptspec")
    return 0


if __name__ == "__main__":
    sys.exit(main())
