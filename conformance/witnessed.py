"""kill_matrix.json: the seeded faults on which each clause was seen failing. `tox -e witnesses` writes it."""

from __future__ import annotations

import json

from ckptspec.conformance.clause import FOLDER

PATH = FOLDER / "kill_matrix.json"

Kills = dict[str, list[dict[str, str]]]
"""Clause id -> its witnesses: `witness`, its name; `verdict`; and `how`, a label or the type of an exception."""


def committed() -> Kills:
    """What was seen last; empty if nothing was."""
    found: Kills = json.loads(PATH.read_text(encoding="utf-8")) if PATH.exists() else {}
    return found


def names() -> dict[str, list[str]]:
    """Clause id -> the names of its witnesses."""
    return {id: [kill["witness"] for kill in kills] for id, kills in committed().items()}


def dump(kills: Kills) -> str:
    return json.dumps(kills, indent=1) + "\n"
