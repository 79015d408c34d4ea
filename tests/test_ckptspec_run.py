"""`ckptspec run`: pytest's exit code and last words, a count while it runs, and names checked before."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest
from invoking import COMMAND, ckptspec, on_terminal, refused
from running import CHECKOUT, TAPE, Outcome, environment, run

from ckptspec.conformance.command import following
from ckptspec.conformance.plugin import OPTIONS

CONTROLS = "tests/controls.py:controls"


def ran(folder: pathlib.Path, *arguments: str, adapter: str = TAPE) -> Outcome:
    """A run in a process of its own."""
    return run([*COMMAND, "run", f"--adapter={adapter}", f"--report={folder}", *arguments], CHECKOUT, folder)


def test_a_good_run_ends_as_pytest_does(tmp_path: pathlib.Path) -> None:
    outcome = ran(tmp_path, "--clause=GRAD-0[1-3]", "--", "-n1")

    assert outcome.code == 0, outcome.output
    assert outcome.last_line.startswith("as expected")
    assert re.search(r"^\d+ passed in ", outcome.output, re.MULTILINE)
    assert "bringing up nodes" not in outcome.output
    assert "...." not in outcome.output
    assert set(outcome.verdicts.values()) == {"PASS"}


def test_a_bad_run_ends_as_pytest_does(tmp_path: pathlib.Path) -> None:
    outcome = ran(tmp_path, "--clause=GRAD-02", "--", "-n0", "-k", "zero-values", adapter=CONTROLS)

    assert outcome.code == 1, outcome.output
    assert "NOT AS EXPECTED: " in outcome.last_line
    assert "FAILED " in outcome.output
    assert "GRAD-02[zero-values] WRONG" in outcome.output


def test_every_option_of_the_suite_is_one_of_the_command() -> None:
    text = ckptspec("run", "--help").stdout

    assert all(name in text for name in OPTIONS)


def test_options_reach_the_suite(tmp_path: pathlib.Path) -> None:
    entry = '[[known]]\nclause = "GRAD-01"\nverdict = "FAIL"\nlabel = "too often"\nreason = "a test"\n'
    (tmp_path / "known.toml").write_text(entry)

    outcome = ran(
        tmp_path / "reports",
        *("--clause=GRAD-01", "--clause=FUZZ-01", "--max-examples=3", "--seed=7", "--case-timeout=50"),
        *(f"--baseline={tmp_path / 'known.toml'}", "--device=cpu", "--", "-n0"),
    )

    assert outcome.report["run"]["clauses"] == ["GRAD-01", "FUZZ-01"]
    assert outcome.report["occasion"]["isolated"] is False
    assert outcome.cases["FUZZ-01[tape]"]["evidence"][0]["examples"] < 10
    assert (outcome.code, outcome.cases["GRAD-01[tape-float64]"]["expectation"]) == (1, "stale")


def test_a_mistake_that_pytest_tells_has_its_exit_code(tmp_path: pathlib.Path) -> None:
    outcome = ran(tmp_path, "--device=cuda")

    assert outcome.code == 4
    assert "ERROR: --adapter=tests/tape.py:adapter: the tape has no device 'cuda'" in outcome.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--adapter=torhc"], "there is no adapter torhc; nearest: torch; there are: jax, "),
        (["--adapter=nowhere.py:adapter"], "there is no file "),
        (["--adapter=dropin:"], "names no module"),
        (["--adapter=torch", "--clause=GRDA-01"], "no clause matches GRDA-01; nearest: GRAD-01"),
        (["--adapter=torch", "--nonsense"], "No such option"),
        (["--adapter=torch", "--case-timeout=soon"], "'soon' is not a valid float"),
        ([], "Missing option '--adapter'"),
    ],
)
def test_a_name_that_is_not_there_is_told_before_anything_runs(arguments: list[str], says: str) -> None:
    assert says in refused("run", *arguments)


def test_a_process_that_dies_has_a_shell_s_exit_code(tmp_path: pathlib.Path) -> None:
    killers = "tests/controls.py:killers"

    assert ran(tmp_path, "--clause=GRAD-01", "--", "-n0", "-k", "abort", adapter=killers).code == 128 + signal.SIGABRT


SLOW = """
import time
import dataclasses, sys
sys.path.insert(0, {tests!r})
from tape import TapeHost, adapter as tape

class Host(TapeHost):
    def seed(self, seed):
        time.sleep(0.2)
        super().seed(seed)

adapter = dataclasses.replace(tape, host=Host)
"""


def test_an_interrupt_ends_the_run_and_leaves_its_report(tmp_path: pathlib.Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW.format(tests=str(CHECKOUT / "tests")))
    arguments = [f"--adapter={tmp_path / 'slow.py'}:adapter", f"--report={tmp_path}", "--clause=GRAD-*", "--", "-n1"]
    with subprocess.Popen(
        [*COMMAND, "run", *arguments],
        cwd=CHECKOUT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)
        output = first + process.stdout.read()

    assert re.match(r"\d+ of \d+: ", first), output
    assert process.returncode == 2, output
    assert "Traceback" not in output
    assert (tmp_path / "tape" / "cpu" / "partial.json").exists()


LEAVING = SLOW.replace("time.sleep(0.2)", "leave()").replace(
    "class Host",
    """
def leave():
    if not hasattr(sys, "left"):
        import pathlib, subprocess
        sys.left = subprocess.Popen(["sleep", "1000"])
        (pathlib.Path(__file__).parent / "pid").write_text(str(sys.left.pid))

class Host""",
)


def test_a_process_that_a_library_leaves_behind_does_not_hold_the_run(tmp_path: pathlib.Path) -> None:
    (tmp_path / "leaving.py").write_text(LEAVING.format(tests=str(CHECKOUT / "tests")))
    start = time.monotonic()

    outcome = ran(tmp_path, "--clause=GRAD-02", "--", "-n0", "-s", adapter=f"{tmp_path / 'leaving.py'}:adapter")

    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert outcome.code == 0, outcome.output
    assert time.monotonic() - start < 200


def test_without_a_terminal_a_line_tells_now_and_then_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("click.echo", said.append)
    monkeypatch.setattr(following, "EVERY", 0.0)
    read, write = os.pipe()
    os.write(
        write, b'{"case": "A", "verdict": "PASS", "selected": 3}\n{"case": "B", "verdict": "N/A", "selected": 3}\n'
    )
    os.close(write)

    following._Count().enter(os.fdopen(read))

    assert said == ["1 of 3: 1 PASS", "2 of 3: 1 PASS, 1 N/A"]


def test_on_a_terminal_a_bar_is_drawn_and_the_last_line_is_the_verdict(tmp_path: pathlib.Path) -> None:
    arguments = [f"--adapter={TAPE}", f"--report={tmp_path}", "--clause=GRAD-0*", "--", "-n1"]

    code, written = on_terminal(*COMMAND, "run", *arguments, directory=CHECKOUT)

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", written)
    assert code == 0, text
    assert re.search(r"━ (\d+)/\1 \d+ PASS", text)
    assert "\r\nas expected" in text or "\ras expected" in text
