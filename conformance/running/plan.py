"""What a run is about: the adapter and what it offers, the selected clauses, the baseline of known failures.

Found in the controller, where everything that can be wrong with the command line is said in one line; what took a
preflight to find out is sent to the workers.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest

import ckptspec.adapters
from ckptspec.conformance import baseline, gate
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import registry
from ckptspec.conformance.running import preflight, resolve, selection
from ckptspec.conformance.verdict import Verdict


class Plan:
    """A run's plan. Raises SelectionError, AdapterError and BaselineError."""

    def __init__(self, config: pytest.Config) -> None:
        self.option = config.option
        self.folder = config.invocation_params.dir
        self.clauses = registry()
        self.is_worker = hasattr(config, "workerinput")
        self.is_isolated = not self.is_worker and bool(getattr(self.option, "numprocesses", None))
        self.selection = selection.select(config, self.clauses)
        if self.is_worker:
            sent = json.loads(config.workerinput["ckptspec"])  # type: ignore[attr-defined]
            self.source, self.description = resolve.Source(**sent["source"]), sent["description"]
        else:
            self.source = resolve.find(self.option.adapter, self.folder)
            self.description = preflight.describe(self.source, self.option.device)
        self.variants = list(self.description["variants"])
        self.known = self._baseline()

    def _baseline(self) -> list[baseline.Known]:
        if self.option.baseline:
            path = self.folder / self.option.baseline
        else:
            ours = pathlib.Path(next(iter(ckptspec.adapters.__path__)), "baselines")
            path = ours / f"{file_name(self.source.asked)}.toml"
            if self.source.folder or not path.exists():
                return []
        known = baseline.read(path, set(self.clauses), self.option.device, self.description["version"])
        # With a seed other programs are drawn, and whatever they show is news.
        return [k for k in known if self.option.seed is None or self.clauses[k.clause].chapter != "FUZZ"]

    def for_workers(self) -> str:
        return json.dumps({"source": self.source.to_json(), "description": self.description})

    def expectation(self, record: Record) -> tuple[gate.Expectation, baseline.Known | None]:
        """How a case stands to what was expected of it, as far as it alone can say."""
        clause, capabilities = self.clauses[record.clause], self.description["variants"][record.variant]
        owed = gate.is_owed(clause, self.selection.profiles, capabilities)
        return gate.expectation(record, clause.level, self.known, is_owed=owed)

    def judge(self, records: list[Record]) -> gate.Gate:
        """How the run stands."""
        return gate.judge(
            records,
            self.clauses,
            self.known,
            is_whole=not self.selection.is_narrowed,
            profiles=self.selection.profiles,
            variants=self.description["variants"],
        )

    def cases(self) -> list[Record]:
        """The cases that the run must execute; none, if it was narrowed by hand."""
        wanted = [] if self.selection.is_narrowed else [self.clauses[id] for id in self.selection.clauses]
        return selection.cases(wanted, self.variants)

    def is_everything(self, records: list[Record]) -> bool:
        """Whether these are all cases of all clauses, and every one was executed."""
        everything = {record.case for record in selection.cases(self.clauses.values(), self.variants)}
        return everything == {record.case for record in records if record.verdict is not Verdict.NOT_RUN}

    def said(self) -> dict[str, Any]:
        """How it was run, for the report."""
        return {
            "device": self.option.device,
            "clauses": self.option.clause,
            "profiles": [profile.value for profile in self.selection.profiles],
            "isolated": self.is_isolated,
        }


def file_name(name: str) -> str:
    """A name as the name of a file."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name).strip(".") or "unnamed"
