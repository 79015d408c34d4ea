"""What a run says at its end: a line a variant, what was noted, what is wrong; on the last line the verdict and why."""

from __future__ import annotations

import os
import pathlib

import pytest

from ckptspec.conformance import gate
from ckptspec.conformance.case import Record
from ckptspec.conformance.printable import line
from ckptspec.conformance.running.plan import Plan
from ckptspec.conformance.verdict import BROKEN, DECLINED, Verdict


def say(
    config: pytest.Config, plan: Plan, records: list[Record], judged: gate.Gate, where: pathlib.Path | None
) -> None:
    """Write it to the terminal, if there is one. `where`: the report, if it could be written."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is None:
        return
    terminal.section("ckptspec", "=")
    for variant in plan.variants:
        terminal.write_line(line(_of_variant(plan.description["name"], variant, records, judged), 10_000))
    for note in judged.notes:
        terminal.write_line(f"  {line(note)}")
    for problem in judged.problems:
        terminal.write_line(f"  ✗ {line(problem, 1000)}", red=True)
    library = sum(r.library_seconds for r in records)
    cases = sum(r.seconds for r in records)
    terminal.write_line(f"cases: {cases:.1f} s, {1 - library / cases if cases else 0:.0%} of it the harness")
    if where is not None:
        terminal.write_line(f"report: {os.path.relpath(where, plan.folder)}")
    colour = {"red": True} if judged.problems else {"green": True}
    terminal.write_line(gate.conclusion(judged, plan.selection.said), bold=True, **colour)


def _of_variant(name: str, variant: str, records: list[Record], judged: gate.Gate) -> str:
    """One variant's outcome, in words for people."""
    verdicts = {clause: v for (of, clause), v in gate.by_clause(records).items() if of == variant}
    applicable = [v for v in verdicts.values() if v is not Verdict.NOT_APPLICABLE]
    known = dict.fromkeys(
        r.clause for r in records if r.variant == variant and judged.expectations[r.case] is gate.Expectation.KNOWN
    )
    parts = [f"{applicable.count(Verdict.PASS)} of {len(applicable)} clauses pass"]
    if known:
        parts.append(f"{len(known)} known failure{'s' * (len(known) > 1)}: {', '.join(known)}")
    if broken := [c for c, v in verdicts.items() if v in BROKEN | {Verdict.ERROR, Verdict.NOT_RUN} and c not in known]:
        parts.append(f"{len(broken)} other: {', '.join(broken)}")
    if declined := sum(v in DECLINED for v in verdicts.values()):
        parts.append(f"{declined} declined")
    if absent := len(verdicts) - len(applicable):
        parts.append(f"{absent} not applicable")
    return f"{name} {variant}: {'; '.join(parts)}"
