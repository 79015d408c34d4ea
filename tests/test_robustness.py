"""What an implementation, a person or a machine does to a run: clear words, nothing lost, no other case suffers."""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree

import misdeeds
import numpy as np
import pytest
from controls import TOOLS, faulty
from misdeeds import MISDEEDS
from running import CHECKOUT, TAPE, Outcome, Suite, environment, once, run
from tape import TapeHost, tape_checkpointer

from ckptspec.conformance import restoring
from ckptspec.conformance.case import execute
from ckptspec.conformance.clause import registry
from ckptspec.conformance.report import model

ADAPTER = "tests/misdeeds.py:adapter"
RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# -- Misdeeds of an implementation -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def misdeeds_run(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Every misdeed in one process, one after the other."""

    def make(folder: pathlib.Path) -> Outcome:
        outputs = f"--junitxml={folder / 'junit.xml'}", f"--summary={folder / 'summary.md'}"
        folder.mkdir()
        return Suite(folder)("--clause=GRAD-0[1-3]", "-n1", *outputs, adapter=ADAPTER)

    return once(tmp_path_factory, "misdeeds", make)


def test_only_the_case_of_a_misdeed_suffers(misdeeds_run: Outcome) -> None:
    honest = {case.replace("honest", "*") for case in misdeeds_run.cases if "[honest" in case}
    each = {case.replace(name, "*") for case in misdeeds_run.cases for name in MISDEEDS if f"[{name}" in case}

    broken = {case for case, verdict in misdeeds_run.verdicts.items() if verdict != "PASS"}
    assert broken - {"GRAD-01[changes-limits-float64]"} == {
        "GRAD-01[floods-float64]",
        "GRAD-01[raises-10-megabytes-float64]",
        "GRAD-01[replaces-builtins-float64]",
    }
    assert {misdeeds_run.verdicts[case] for case in broken} == {"FAIL"}
    assert each == honest
    assert len(misdeeds_run.cases) == (len(MISDEEDS) + 1) * len(honest)
    assert misdeeds_run.last_line.startswith("NOT AS EXPECTED: GRAD-01[")


def test_nothing_that_a_terminal_acts_on_is_printed(misdeeds_run: Outcome) -> None:
    assert not RAW.search(misdeeds_run.output)
    assert "\\x1b[31m\\x07\\r\\x00" in misdeeds_run.output
    assert len(misdeeds_run.output) < 200_000


def test_nothing_that_a_page_acts_on_is_in_the_summary(misdeeds_run: Outcome) -> None:
    text = (misdeeds_run.folder / "summary.md").read_text()

    assert not RAW.search(text)
    assert "](" not in text
    assert "<script" not in text
    assert len(text) < 20_000


def test_junit_xml_is_valid_and_small(misdeeds_run: Outcome) -> None:
    path = misdeeds_run.folder / "junit.xml"
    cases = list(ElementTree.parse(path).iter("testcase"))

    assert len(cases) == len(misdeeds_run.cases)
    assert path.stat().st_size < 500_000
    broken = {name for name, verdict in misdeeds_run.verdicts.items() if verdict != "PASS"}
    assert len([case for case in cases if case.find("failure") is not None]) == len(broken)


def test_a_message_of_10_megabytes_is_cut_off(misdeeds_run: Outcome) -> None:
    case = misdeeds_run.cases["GRAD-01[raises-10-megabytes-float64]"]

    assert len(json.dumps(case)) < 20_000
    assert case["message"].startswith(misdeeds.RED)


def test_a_process_that_is_left_behind_does_not_hide_a_crash(suite: Suite) -> None:
    outcome = suite("--clause=GRAD-0[12]", "-n1", "--case-timeout=15", adapter="tests/misdeeds.py:orphans")

    broken = {name: case["signal"] for name, case in outcome.cases.items() if case["verdict"] != "PASS"}
    assert broken == {"GRAD-01[aborts-float64]": "SIGABRT"}


def test_a_hang_ends_though_the_alarm_was_switched_off(suite: Suite) -> None:
    outcome = suite("--clause=GRAD-0[12]", "-n1", "--case-timeout=2", adapter="tests/misdeeds.py:sleepers")

    broken = {name: case["verdict"] for name, case in outcome.cases.items() if case["verdict"] != "PASS"}
    assert broken == {"GRAD-01[switches-the-alarm-off-float64]": "TIMEOUT"}


# -- What is put back --------------------------------------------------------------------------------------------------


def state() -> dict[str, Any]:
    """What the suite and its cases feel of the process."""
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "generators": (random.getstate(), np.random.get_state()[1].tolist(), np.geterr()),
        "signals": {s: signal.getsignal(s) for s in signal.valid_signals()},
        "timers": [signal.getitimer(t) for t in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "limits": (sys.getrecursionlimit(), sys.gettrace(), sys.getprofile()),
        "modules": {name: id(module) for name, module in sys.modules.items()},
        "path": list(sys.path),
        "names": {m.__name__: {k: id(v) for k, v in vars(m).items()} for m in restoring.MODULES},
    }


FELT = [
    "changes-generators", "changes-signals", "changes-places", "changes-limits", "forgets-modules", "replaces-builtins",
    "changes-clocks", "changes-tools", "traces",
]  # fmt: skip


@pytest.mark.parametrize("name", FELT)
def test_what_a_case_changes_is_put_back(name: str) -> None:
    before, during = state(), None
    try:
        with restoring.restored():
            MISDEEDS[name]()
    finally:
        during = state()

    assert during == before


@pytest.mark.parametrize("library", ["torch", "tensorplay"])
def test_a_host_puts_back_what_is_its_library_s(library: str) -> None:
    module = pytest.importorskip(library)
    host = importlib.import_module(f"ckptspec.adapters.{library}_adapter").adapter.host("cpu")

    module.set_default_dtype(module.float64)
    module.set_grad_enabled(False)
    host.restore()

    assert module.is_grad_enabled()
    assert module.get_default_dtype() == module.float32


def test_a_process_that_a_case_forks_ends_with_the_case() -> None:
    source, target = os.pipe()
    mine = os.getpid()
    with restoring.restored():
        os.fork()
        os.write(target, b"%d " % os.getpid())
    os.write(target, b"went on")
    os.close(target)

    with open(source) as written:
        *processes, went, on = written.read().split()
    assert str(mine) in processes
    assert (len(processes), went, on) == (2, "went", "on")


class Speechless(Exception):
    """An exception that can't say what it is."""

    label = 3

    def __str__(self) -> str:
        raise KeyError("no words")


@pytest.mark.parametrize(
    ("raised", "message"),
    [(Speechless(), "Speechless whose text raises KeyError"), (OSError("x" * 10_000_000), "x" * 2000)],
    ids=["without words", "with too many"],
)
def test_any_exception_makes_a_record(raised: Exception, message: str) -> None:
    def raising(*_: object) -> Any:
        def call(*_: object) -> None:
            raise raised

        return call

    host = TapeHost()
    checkpointer = faulty(tape_checkpointer, raising, TOOLS)(host)
    clause = registry()["GRAD-02"]
    record, error = execute(clause, "only", "", clause.function, host, checkpointer)

    assert error is raised
    assert (record.verdict, record.message) == ("FAIL", message)


HOSTILE_NAMES = """
import dataclasses, sys
sys.path.insert(0, {tests!r})
from tape import adapter as tape

adapter = dataclasses.replace(
    tape, name="../\\x1b[31m", version="1\\r\\x00", variants={{{variant!r}: tape.variants["tape"]}}
)
"""


@pytest.mark.parametrize(
    ("variant", "refusal"),
    [("a-b", ""), ("\x1b[31m", "a variant can't be named '\\x1b[31m'"), ("é", "named 'é'")],
    ids=ascii,
)
def test_a_name_is_text_or_refused(suite: Suite, tmp_path: pathlib.Path, variant: str, refusal: str) -> None:
    path = tmp_path / "given.py"
    path.write_text(HOSTILE_NAMES.format(tests=str(CHECKOUT / "tests"), variant=variant))

    outcome = suite("--clause=GRAD-02", "-n0", adapter=f"{path}:adapter")

    assert not RAW.search(outcome.output)
    assert outcome.code == (4 if refusal else 0), outcome.output
    assert refusal in "".join(outcome.errors)
    assert refusal or outcome.path.parts[-3] == "---31m"


# -- What happens to a run ---------------------------------------------------------------------------------------------


class Running:
    """A run that takes its time, in a session of its own, so that signals reach its workers as from a terminal."""

    def __init__(self, folder: pathlib.Path, *arguments: str) -> None:
        self.folder = folder / "slowly" / "cpu"
        self.folder.mkdir(parents=True)
        (self.folder / "report.json").write_text("the previous one")
        command = [sys.executable, "-m", "pytest", "conformance", "-p", "no:cacheprovider", f"--report={folder}"]
        command += ["--adapter=tests/misdeeds.py:slowly", "--clause=GRAD-*", *arguments]
        # Where the tests themselves run in the background, an interrupt is ignored, and a child would ignore it too.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        self.process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        signal.signal(signal.SIGINT, before)
        self.wait_for(lambda: "PASS" in self.so_far())

    def so_far(self) -> str:
        path = self.folder / "running.json"
        return path.read_text() if path.exists() else ""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        for _ in range(1200):
            if condition():
                return
            time.sleep(0.05)
        raise TimeoutError

    def has_processes(self) -> bool:
        """Whether any process of the run is still there."""
        return any(_session(path) == self.process.pid for path in pathlib.Path("/proc").glob("[0-9]*"))


def _session(process: pathlib.Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return 0


@pytest.fixture
def running(tmp_path: pathlib.Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(*arguments: str) -> Running:
        started.append(Running(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            os.killpg(one.process.pid, signal.SIGKILL)
        one.process.communicate()


def test_a_run_that_is_killed_leaves_a_partial_report_and_the_previous_one(
    running: Callable[..., Running], tmp_path: pathlib.Path
) -> None:
    killed = running("-n2")
    second = Suite(tmp_path)("--clause=GRAD-01", "-n0", adapter="tests/misdeeds.py:slowly")
    killed.process.kill()
    killed.process.wait()

    # The second, in the same folder at the same time, is told of the first and does nothing.
    assert second.code == 4
    (line,) = second.errors
    assert line.startswith(f"ERROR: --report: process {killed.process.pid} is writing to {killed.folder}; wait for it")
    # What was known when the first was killed can be read and can't be taken for more.
    report = model.load(killed.folder / "running.json")
    verdicts = {case["verdict"] for clause in report["clauses"] for case in clause["cases"]}
    assert report["run"]["complete"] is False
    assert {"PASS", "NOT_RUN"} <= verdicts <= {"PASS", "N/A", "NOT_RUN"}
    assert (killed.folder / "report.json").read_text() == "the previous one"
    assert sorted(p.name for p in killed.folder.iterdir()) == ["report.json", "running.json"]
    killed.wait_for(lambda: not killed.has_processes())
    # A later run needs no cleaning up.
    later = Suite(tmp_path)("--clause=GRAD-01", "-n0", adapter="tests/misdeeds.py:slowly")
    assert later.code == 0, later.output
    assert sorted(p.name for p in killed.folder.iterdir()) == ["partial.json", "report.json"]


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_a_run_that_is_interrupted_says_so(running: Callable[..., Running], workers: str) -> None:
    interrupted = running(workers)
    os.killpg(interrupted.process.pid, signal.SIGINT)
    output = interrupted.process.communicate(timeout=60)[0].decode()

    assert interrupted.process.returncode == 2
    assert output.strip().splitlines()[-1].startswith("NOT AS EXPECTED: interrupted: KeyboardInterrupt and 1 more")
    assert "✗ NOT_RUN: GRAD-" in output
    assert model.load(interrupted.folder / "partial.json")["run"]["complete"] is False
    assert sorted(p.name for p in interrupted.folder.iterdir()) == ["partial.json", "report.json"]


def plugin(tmp_path: pathlib.Path, text: str) -> dict[str, str]:
    """The environment in which `-p meddling` is a plugin with this text."""
    (tmp_path / "meddling.py").write_text("import os, pathlib, shutil, pytest\n" + text)
    return {"PYTHONPATH": str(tmp_path)}


def test_a_full_disk_costs_no_report(suite: Suite) -> None:
    folder = suite.folder / "tape" / "cpu"
    folder.mkdir(parents=True)
    (folder / "partial.json").write_text("the previous one")
    limited = "import resource, pytest; resource.setrlimit(resource.RLIMIT_FSIZE, (9999, 9999)); exit(pytest.main())"
    options = "-p", "no:cacheprovider", f"--adapter={TAPE}", f"--report={suite.folder}", "--clause=GRAD-*", "-n0"

    outcome = run([sys.executable, "-c", limited, "conformance", *options], CHECKOUT, suite.folder)

    assert outcome.code == 1
    assert outcome.last_line.startswith("NOT AS EXPECTED: ")
    assert outcome.last_line.endswith("can't be written: File too large")
    assert "Traceback" not in outcome.output
    assert (folder / "partial.json").read_text() == "the previous one"
    assert [p.name for p in folder.iterdir()] == ["partial.json"]


def test_a_report_that_cannot_be_written_where_it_should_be_is_not_lost(suite: Suite, tmp_path: pathlib.Path) -> None:
    folder = suite.folder / "tape" / "cpu"
    in_the_way = (
        f"def pytest_collection_finish(): shutil.rmtree({str(folder)!r}); pathlib.Path({str(folder)!r}).touch()\n"
    )

    outcome = suite("--clause=GRAD-01", "-n0", "-p", "meddling", **plugin(tmp_path, in_the_way))

    assert outcome.code == 1
    found = re.fullmatch(r"NOT AS EXPECTED: (.*) can't be written: File exists; it is in (.*)", outcome.last_line)
    assert found is not None, outcome.last_line
    spare = pathlib.Path(found[2])
    assert set(model.load(spare)["counts"]["tape"]["MUST"]) == {"PASS"}
    spare.unlink()


def test_a_report_folder_that_is_removed_is_made_again(suite: Suite, tmp_path: pathlib.Path) -> None:
    text = f"def pytest_collection_finish(): shutil.rmtree({str(suite.folder)!r})\n"

    outcome = suite("--clause=GRAD-01", "-n0", "-p", "meddling", **plugin(tmp_path, text))

    assert outcome.code == 0, outcome.output
    assert set(outcome.verdicts.values()) == {"PASS"}


@pytest.mark.parametrize("option", ["--junitxml", "--summary"])
def test_another_file_that_cannot_be_written_is_said_on_the_last_line(suite: Suite, option: str) -> None:
    outcome = suite("--clause=GRAD-01", "-n0", f"{option}=/dev/full")

    assert outcome.code == 1
    assert outcome.last_line.startswith("NOT AS EXPECTED: ")
    assert "No space left on device" in outcome.last_line
    assert "Traceback" not in outcome.output
    assert set(outcome.verdicts.values()) == {"PASS"}


def test_workers_that_end_before_their_first_case_end_the_run(suite: Suite, tmp_path: pathlib.Path) -> None:
    text = "def pytest_configure(config):\n    if hasattr(config, 'workerinput'):\n        os._exit(7)\n"

    outcome = suite("--clause=GRAD-01", "-n1", "-p", "meddling", **plugin(tmp_path, text))

    assert outcome.code == 1
    assert outcome.last_line == (
        "NOT AS EXPECTED: 3 workers in a row ended before their first case, the last with exit 7 and 1 more"
    )
    assert set(outcome.verdicts.values()) == {"NOT_RUN"}
