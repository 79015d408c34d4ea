"""A run's reproducers: made for every failed case that has one, written beside the report, and nothing stale left."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from ckptspec.conformance.backend import Words
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause
from ckptspec.conformance.printable import line
from ckptspec.conformance.report import model
from ckptspec.conformance.reproducer.fault import Fault
from ckptspec.conformance.reproducer.script import reproducer
from ckptspec.conformance.reproducer.spelling import Unspeakable
from ckptspec.conformance.verdict import BROKEN

FOLDER = "reproducers"
"""Of a whole run's scripts, in the folder of its report; the scripts of another run are in `partial-reproducers`."""


def scripts(
    records: Iterable[Record], clauses: Mapping[str, Clause], description: Mapping[str, Any], limit: float
) -> tuple[dict[str, str], list[str]]:
    """Case -> the script that shows what failed; and what was in the way of others, a line each.

    description: the preflight's. limit: seconds of a case, 0: none. Left out are cases that hold, and those for which
    there are no words.
    """
    library = f"{description['name']} {description['version']}"
    found, troubles = dict[str, str](), dict[str, str]()
    for record in sorted(records, key=lambda r: r.case):
        words = description["words"][record.variant]
        if record.verdict not in BROKEN or words is None:
            continue
        try:
            fault = Fault(record, limit or 60.0)
            found[record.case] = reproducer(clauses[record.clause], fault, Words(**words), library)
        except Unspeakable:
            continue
        except Exception as error:  # the adapter's words are wrong, or we are: the report is worth more than a script
            troubles.setdefault(line(f"{type(error).__name__}: {error}"), record.case)
    return found, [f"no reproducer of {case}: {trouble}" for trouble, case in troubles.items()]


def places(cases: Iterable[str], *, is_whole: bool) -> dict[str, str]:
    """Case -> where its script is, from the report."""
    folder = FOLDER if is_whole else f"partial-{FOLDER}"
    found: dict[str, str] = {}
    for case in cases:
        name = re.sub(r"[^A-Za-z0-9_.-]+", "-", case).strip("-.")[:150]
        path, n = f"{folder}/{name}.py", 2
        while path in found.values():
            path, n = f"{folder}/{name}-{n}.py", n + 1
        found[case] = path
    return found


def write(folder: pathlib.Path, texts: Mapping[str, str], places: Mapping[str, str], *, is_whole: bool) -> None:
    """Write the scripts into the report's folder, and remove those of an earlier run. Raises ReportError."""
    inside = folder / (FOLDER if is_whole else f"partial-{FOLDER}")
    for case, text in texts.items():
        model.write(folder / places[case], text)
    written = {folder / place for place in places.values()}
    try:
        for path in set(inside.glob("*.py")) - written:
            path.unlink()
        if inside.is_dir() and not any(inside.iterdir()):
            inside.rmdir()
    except OSError as error:
        raise model.ReportError(f"{inside} can't be cleared: {error.strerror or error}") from error
