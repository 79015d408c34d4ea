"""What a script shows: how a case failed, in the words by which the script knows it and those that people read."""

from __future__ import annotations

import ast
import signal
import textwrap
from dataclasses import dataclass

from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause
from ckptspec.conformance.printable import line
from ckptspec.conformance.reproducer.folding import literal
from ckptspec.conformance.reproducer.trimming import Aim, label
from ckptspec.conformance.reproducer.vocabulary import mentions
from ckptspec.conformance.reproducer.wrapping import LIMIT
from ckptspec.conformance.under_test import NoReplay
from ckptspec.conformance.verdict import Verdict


@dataclass(frozen=True)
class Fault:
    """What a script shows: how a case failed. limit: seconds after which a case that does not end is ended."""

    record: Record
    limit: float = 60.0

    @property
    def is_unreplayed(self) -> bool:
        return self.record.label == NoReplay.label

    @property
    def is_bound(self) -> bool:
        """Whether an assertion of the clause's own failed."""
        return self.record.verdict is Verdict.FAIL and bool(self.record.label) and not self.is_unreplayed

    @property
    def aim(self) -> Aim:
        return Aim(self.record.label if self.is_bound else "", len(self.record.evidence))

    @property
    def label(self) -> str:
        """What the script knows the fault by, as Python: how a message begins, an exit code, or seconds."""
        record = self.record
        match record.verdict:
            case Verdict.CRASH:
                name = record.signal
                return str(-signal.Signals[name] if name in signal.Signals.__members__ else int(name.split()[-1]))
            case Verdict.TIMEOUT:
                return f"{self.limit:g}"
            case Verdict.WRONG:
                return literal(f"{record.label}:")
        return literal((f"{record.exception} in {record.phase}:" if record.exception else record.label)[:60])

    @property
    def title(self) -> str:
        record = self.record
        match record.verdict:
            case Verdict.CRASH:
                return f"the process ends with {record.signal}"
            case Verdict.TIMEOUT:
                return f"no end after {self.limit:g} seconds"
            case Verdict.WRONG:
                return f"a wrong {record.label}"
        return f"{record.exception} in {record.phase}" if record.exception else record.label


def ending(main: ast.AST, fault: Fault) -> tuple[str, dict[str, str]]:
    """Which function of the stage ends the script, and what it is told."""
    record = fault.record
    expected, kind = "the value and the gradients of the plain call", "assertion"
    told = {"LABEL": fault.label}
    if record.verdict is Verdict.CRASH:
        expected, kind = "exit code 0", "death"
    elif record.verdict is Verdict.TIMEOUT:
        expected, kind = "an end", "hang"
    elif record.exception:
        expected, kind = "no exception", "exception"
    elif fault.is_unreplayed:
        expected = "an execution in backward"
    else:
        found = [n for n in ast.walk(main) if isinstance(n, ast.Assert) and label(n) == record.label]
        expected = " ".join(ast.unparse(found[-1].test).split()) if found else expected
    control = NoReplay.label if fault.is_unreplayed else record.control
    shown = {NoReplay.label, *map(label, ast.walk(main))}
    if "plain=" in mentions(main):  # a program whose plain run tells another story
        shown |= {"value", "gradient"}
    if control and control in shown and kind == "assertion":
        kind, told["CONTROL"] = "bound", literal(control[:60])
    return kind, told | {"EXPECTED": literal(f"expected: {expected}\nobserved:")}


def docstring(clause: Clause, fault: Fault, library: str) -> str:
    record = fault.record
    where = ", ".join(filter(None, (f"{clause.id} on {library}", record.variant, record.parameters)))
    said = record.message.split("\n +")[0].removeprefix(record.label).strip()
    paragraphs = [
        *textwrap.wrap(line(f"{where}: {fault.title}."), LIMIT - 3),
        "",
        *textwrap.wrap(f"Specified: {clause.sentence}", LIMIT),
        *textwrap.wrap(f"Observed: {line(said, 200) or 'no message'}", LIMIT),
        "Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.",
    ]
    text = "\n".join(paragraphs).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""'
