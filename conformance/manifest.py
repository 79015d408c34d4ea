"""manifest.json: ids, levels and numbers of cases, so that the specification can't shrink unnoticed.

An id that is gone, a level that is lower or a number of cases that is smaller needs a line in CHANGELOG.md that names
the id.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ckptspec.conformance.clause import FOLDER, Level, registry

PATH = FOLDER / "manifest.json"

Manifest = dict[str, dict[str, Any]]


def current() -> Manifest:
    """What the clauses say today; `cases` is the number of cases a variant."""
    return {
        c.id: {"level": c.level.value, "cases": math.prod(len(values) for values in c.each.values())}
        for c in registry().values()
    }


def committed() -> Manifest:
    """What was written last; empty if nothing was."""
    found: Manifest = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    return found


def shrinkage(before: Manifest, after: Manifest, changelog: str) -> list[str]:
    """What became less without a line in the changelog."""
    levels = [level.value for level in (Level.MAY, Level.SHOULD, Level.MUST)]
    found = []
    for id, old in before.items():
        new = after.get(id)
        if re.search(rf"\b{re.escape(id)}\b", changelog):
            continue
        if new is None:
            found.append(f"{id} is gone")
        elif levels.index(new["level"]) < levels.index(old["level"]):
            found.append(f"{id} was {old['level']} and is {new['level']}")
        elif new["cases"] < old["cases"]:
            found.append(f"{id} had {old['cases']} cases and has {new['cases']}")
    return [f"{line}, and CHANGELOG.md does not name it" for line in found]


def dump(manifest: Manifest) -> str:
    return json.dumps(manifest, indent=1) + "\n"
