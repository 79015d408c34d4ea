"""A case: one clause on one variant with one set of parameters; and the record of what came of it."""

from __future__ import annotations

import faulthandler
import json
import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from ckptspec.conformance import control
from ckptspec.conformance.backend import Checkpointer, Fact, Host, MissingFact, NotWritten
from ckptspec.conformance.clause import FOLDER, Clause, by_name
from ckptspec.conformance.explore import DEFAULT, Exploration
from ckptspec.conformance.restoring import restored
from ckptspec.conformance.under_test import UnderTest, collected
from ckptspec.conformance.verdict import Observed, Verdict, conclude

MESSAGE_LIMIT = 2000
"""Characters of an implementation's text that a record keeps."""

ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
"""Addresses in a text: they differ from run to run."""


@dataclass
class Record:
    """What came of a case. Plain data: it travels between processes and into the report.

    phase, label, exception, signal: how it failed, in words that do not change from run to run.
    message: how it failed, in words for people. evidence: what each run of the case observed.
    control: the label of what fails as well where the checkpoint is a plain call.
    seconds: of the case; library_seconds: the part of it in which programs ran.
    """

    clause: str
    variant: str
    parameters: str
    verdict: Verdict
    phase: str = ""
    label: str = ""
    exception: str = ""
    signal: str = ""
    message: str = ""
    evidence: list[dict[str, Any]] = field(default_factory=list)
    control: str = ""
    seconds: float = 0.0
    library_seconds: float = 0.0

    @property
    def case(self) -> str:
        return case_id(self.clause, self.variant, self.parameters)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"case": self.case}

    @staticmethod
    def from_json(data: dict[str, Any]) -> Record:
        fields = {k: v for k, v in data.items() if k != "case"}
        return Record(**fields | {"verdict": Verdict(data["verdict"])})


def _text(error: BaseException) -> str:
    """What an exception says, which an implementation's own may not be able to."""
    try:
        return str(error)
    except Exception as another:
        return f"{type(error).__name__} whose text raises {type(another).__name__}"


def _lasting(text: str) -> str:
    """An implementation's text without what differs between machines and runs: addresses, and the suite's folder."""
    return ADDRESS.sub("0x…", text.replace(f"{FOLDER.parent}/", ""))[:MESSAGE_LIMIT]


def case_id(clause: str, variant: str, parameters: str) -> str:
    return f"{clause}[{'-'.join(filter(None, (variant, parameters)))}]"


def of_node(nodeid: str, variants: list[str]) -> tuple[Clause, str, str] | None:
    """Clause, variant and parameters of a pytest node id; None if it is no case of ours."""
    name, _, brackets = nodeid.rpartition("::")[2].partition("[")
    clause, inside = by_name(name), brackets.removesuffix("]")
    for variant in sorted(variants, key=len, reverse=True):
        if clause and (inside == variant or inside.startswith(variant + "-")):
            return clause, variant, inside[len(variant) + 1 :]
    return None


def execute(
    clause: Clause,
    variant: str,
    parameters: str,
    call: Callable[[UnderTest], None],
    host: Host,
    checkpointer: Checkpointer,
    exploration: Exploration = DEFAULT,
) -> tuple[Record, BaseException | None]:
    """Run a case and conclude. Returns the record and the exception behind it; nothing is raised."""
    under_test = UnderTest(host, checkpointer, exploration)
    start = time.perf_counter()
    error: BaseException | None = None
    detach_log_handlers()
    # A library's warnings are no failures; a clause about them records its own.
    with collected(), warnings.catch_warnings(record=True):
        warnings.simplefilter("ignore")
        try:
            for fact in sorted(clause.needs - host.facts, key=lambda f: f.name):
                raise MissingFact(f"{host.name} does not have {fact.value}")
            host.restore()
            with restored():
                call(under_test)
            under_test.finish()
        except BaseException as caught:  # also KeyboardInterrupt, pytest.exit, sys.exit: a case ends only itself
            error = caught
        observed, found = under_test.classify(error), ""
        if observed in (Observed.BOUND, Observed.WRONG) and checkpointer.words and Fact.PROCESSES not in clause.needs:
            found = control.label(call, host, checkpointer)
    is_declared = checkpointer.capabilities.issuperset(clause.tests)
    record = Record(
        clause.id,
        variant,
        parameters,
        conclude(observed, is_declared=is_declared),
        evidence=under_test.evidence,
        control=found,
    )
    if error is not None:
        record.message = _lasting(_text(error))
        record.phase = under_test.phase_of(error) or ""
        if observed in (Observed.WRONG, Observed.BOUND):
            label = getattr(error, "label", "")
            first = (record.message.splitlines() or [""])[0]
            record.label = _lasting(label) if isinstance(label, str) and label else first
        elif isinstance(error, NotWritten):
            record.label = error.label
        elif observed in (Observed.RAISED, Observed.OTHER):
            record.exception = type(error).__name__[:MESSAGE_LIMIT]
    record.seconds = time.perf_counter() - start
    record.library_seconds = min(max(under_test.library_seconds, 0.0), record.seconds)
    return record, error


def detach_log_handlers() -> None:
    """Take the handlers of pytest away: they raise, inside the library, for a record that cannot be formatted."""
    root = logging.getLogger()
    for logger in (root, *root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.handlers = [h for h in logger.handlers if not type(h).__module__.startswith("_pytest")]


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End this process if the body takes longer, even if it never releases the interpreter."""
    if seconds <= 0:
        yield
        return
    faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__ or 2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


PROPERTY = "ckptspec"
"""The name under which a record travels in pytest's user properties."""


def to_property(record: Record) -> tuple[str, str]:
    return PROPERTY, json.dumps(record.to_json())


def from_properties(properties: list[tuple[str, object]]) -> Record | None:
    found = [value for name, value in properties if name == PROPERTY]
    return Record.from_json(json.loads(str(found[-1]))) if found else None
