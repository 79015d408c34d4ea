"""Bad input is one line that says what was tried and what is there; and what a run exits with."""

from __future__ import annotations

import pathlib
import textwrap

import pytest
from running import CHECKOUT, TAPE, Outcome, Suite

USAGE = 4
TESTS = str(CHECKOUT / "tests")

HOST = f"""
import dataclasses, sys
sys.path.insert(0, {TESTS!r})
from tape import TapeHost, adapter as tape

class Host(TapeHost):
    {{body}}

adapter = dataclasses.replace(tape, host=Host)
"""


def written(tmp_path: pathlib.Path, text: str, name: str = "given.py") -> str:
    (tmp_path / name).write_text(textwrap.dedent(text))
    return str(tmp_path / name)


def host(tmp_path: pathlib.Path, body: str) -> str:
    """An adapter like the tape's, whose host has another method."""
    return written(tmp_path, HOST.replace("{body}", body)) + ":adapter"


def refused(outcome: Outcome) -> str:
    """The one line by which a run is refused before its first clause."""
    assert outcome.code == USAGE, outcome.output
    assert "Traceback" not in outcome.output
    assert "ckptspec =" not in outcome.output
    assert not list(outcome.folder.glob("*/*/*.json"))
    (line,) = outcome.errors
    return line.removeprefix("ERROR: ")


def test_an_unknown_adapter_is_told_which_there_are(suite: Suite) -> None:
    line = refused(suite(adapter="NOPE"))

    assert line.startswith("--adapter=NOPE: no adapter of that name; there are: ")
    assert "torch" in line


def test_a_path_without_a_file_is_named(suite: Suite) -> None:
    assert "there is no file /nowhere/adapter.py" in refused(suite(adapter="/nowhere/adapter.py:adapter"))


def test_a_module_that_does_not_exist_is_named(suite: Suite) -> None:
    line = refused(suite(adapter="no.such.module:adapter"))

    assert "importing no.such.module raises ModuleNotFoundError: No module named 'no'" in line


def test_an_import_that_fails_says_with_what(suite: Suite, tmp_path: pathlib.Path) -> None:
    line = refused(suite(adapter=written(tmp_path, "raise OSError('two\\nlines')") + ":adapter"))

    assert line.endswith("importing given raises OSError: two lines")


@pytest.mark.parametrize(
    ("ending", "says"),
    [
        ("import os; os.abort()", "the process that loads it ended with code -6"),
        ("import os; os._exit(0)", "the process that loads it ended with code 0: no output"),
        ("raise SystemExit('bye')", "bye"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    ],
)
def test_an_import_that_ends_the_process_is_survived(
    suite: Suite, tmp_path: pathlib.Path, ending: str, says: str
) -> None:
    assert says in refused(suite(adapter=written(tmp_path, ending) + ":adapter"))


def test_an_attribute_that_does_not_exist_is_named(suite: Suite, tmp_path: pathlib.Path) -> None:
    assert "'given' has no attribute 'adapter'" in refused(suite(adapter=written(tmp_path, "") + ":adapter"))


def test_an_object_that_is_no_adapter_is_told_so(suite: Suite, tmp_path: pathlib.Path) -> None:
    line = refused(suite(adapter=written(tmp_path, "adapter = 3") + ":adapter"))

    assert line.endswith("given:adapter is no Adapter but int")


def test_a_dropin_without_checkpoint_is_told_so(suite: Suite, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("torch")

    assert "given has no function 'checkpoint'" in refused(suite(adapter=f"dropin:{written(tmp_path, '')}"))


def test_a_dropin_needs_a_module(suite: Suite) -> None:
    assert "--adapter=dropin: names no module" in refused(suite(adapter="dropin:"))


def test_no_adapter_at_all_is_told_which_there_are(suite: Suite) -> None:
    assert refused(suite("--report=unused", adapter=None)).startswith("--adapter=NAME is missing; there are: ")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("def array(self, values): raise OSError('no memory')", "tape: making an array raises OSError: no memory"),
        ("def array(self, values): return super().array(values * 0)", "an array of [0.5, 2.0] reads back as [0. 0.]"),
        ("def vjp(self, fn, *primals): raise OSError('no')", "differentiating x * x with a probe on x raises OSError"),
        (
            "def vjp(self, fn, *primals): y, _ = super().vjp(fn, *primals); return y, lambda *_: primals",
            "the gradient of x * x at [0.5, 2.0] is [0.5 2. ]",
        ),
        ("def probe(self, x, executed): return x", "a probe that was executed once counts 0"),
        (
            "def probe(self, x, executed): executed(); return super().probe(x, executed)",
            "a probe that was executed once counts 2",
        ),
        ("def __init__(self, device): raise OSError('no driver')", "OSError: no driver"),
    ],
)
def test_a_host_that_does_not_work_is_told_what_failed(
    suite: Suite, tmp_path: pathlib.Path, body: str, says: str
) -> None:
    assert says in refused(suite(adapter=host(tmp_path, body)))


def test_a_device_that_is_not_there_is_named(suite: Suite) -> None:
    assert "the tape has no device 'cuda'; there is: cpu" in refused(suite("--device=cuda"))


@pytest.mark.parametrize("globs", [["NOPE"], ["GRAD-01", "NOPE"], [""]])
def test_a_clause_that_does_not_exist_is_no_empty_run(suite: Suite, globs: list[str]) -> None:
    line = refused(suite(*[f"--clause={glob}" for glob in globs]))

    assert line.startswith(f"--clause={globs[-1]} matches none of the ")
    assert "SPEC.md lists them" in line


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_deselecting_everything_is_no_empty_run(suite: Suite, workers: str) -> None:
    outcome = suite("-k", "nothing_has_this_name", workers)

    assert outcome.code == 1
    assert outcome.last_line == "NOT AS EXPECTED: no case was selected"


def test_a_report_folder_that_cannot_be_written_is_said_at_the_start(suite: Suite, tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("in the way")

    line = refused(suite(f"--report={tmp_path / 'file' / 'reports'}"))

    assert line.startswith(f"--report: {tmp_path / 'file' / 'reports' / 'tape' / 'cpu'} can't be written: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known", "baseline.toml: "),
        ('[[known]]\nclause = "NOPE-01"\nverdict = "FAIL"\nlabel = "x"\nreason = "y"', "there is no clause NOPE-01"),
        ('[[known]]\nclause = "GRAD-01"\nverdict = "FAIL"\nlabel = "x"\nreason = "TODO"', "still to be written"),
    ],
)
def test_a_broken_baseline_is_refused(suite: Suite, tmp_path: pathlib.Path, text: str, says: str) -> None:
    baseline = written(tmp_path, text, "baseline.toml")

    assert says in refused(suite(f"--baseline={baseline}"))


def test_a_baseline_that_is_not_there_is_refused(suite: Suite, tmp_path: pathlib.Path) -> None:
    assert "No such file" in refused(suite(f"--baseline={tmp_path / 'none.toml'}"))


# -- Exit codes of runs ------------------------------------------------------------------------------------------------


def known(tmp_path: pathlib.Path, verdict: str, cause: str, variant: str) -> str:
    text = (
        f'[[known]]\nclause = "GRAD-02"\nverdict = "{verdict}"\nvariant = "{variant}"\n{cause}\nreason = "a control"\n'
    )
    return "--baseline=" + written(tmp_path, text, "baseline.toml")


def test_a_good_run_exits_with_0_and_says_so(suite: Suite) -> None:
    outcome = suite("--clause=GRAD-02", "-n0")

    assert outcome.code == 0
    assert outcome.last_line.startswith("as expected: ")
    assert "tape tape: 1 of 1 clauses pass\n" in outcome.output


def test_a_bad_run_exits_with_1_and_names_the_case(suite: Suite) -> None:
    outcome = suite("--clause=GRAD-02", "-n0", "-k", "zero-values", adapter="tests/controls.py:controls")

    assert outcome.code == 1
    assert outcome.last_line.startswith("NOT AS EXPECTED: GRAD-02[zero-values] WRONG ")


def test_a_known_failure_exits_with_0(suite: Suite, tmp_path: pathlib.Path) -> None:
    outcome = suite(
        *("--clause=GRAD-02", "-n0", "-k", "zero-values"),
        known(tmp_path, "WRONG", 'label = "value"', "zero-values"),
        adapter="tests/controls.py:controls",
    )

    assert outcome.code == 0
    assert outcome.last_line.startswith("as expected: ")
    assert "controls zero-values: 0 of 1 clauses pass; 1 known failure: GRAD-02" in outcome.output


def test_a_known_failure_that_passes_exits_with_1_and_its_name(suite: Suite, tmp_path: pathlib.Path) -> None:
    outcome = suite("--clause=GRAD-02", "-n0", known(tmp_path, "WRONG", 'label = "value"', "*"))

    assert outcome.code == 1
    assert outcome.last_line == "NOT AS EXPECTED: GRAD-02[tape] PASS; the baseline still expects WRONG value"
    assert "GRAD-02[tape] PASS; the baseline still expects WRONG value" in outcome.output


def test_a_known_failure_that_fails_another_way_exits_with_1_and_its_name(suite: Suite, tmp_path: pathlib.Path) -> None:
    outcome = suite(
        *("--clause=GRAD-02", "-n0", "-k", "zero-values"),
        known(tmp_path, "FAIL", 'exception = "OSError"', "zero-values"),
        adapter="tests/controls.py:controls",
    )

    assert outcome.code == 1
    assert outcome.last_line.startswith("NOT AS EXPECTED: GRAD-02[zero-values] WRONG ")
    assert "the baseline expects FAIL OSError" in outcome.output


def test_a_failing_should_is_a_line_and_exits_with_0(suite: Suite) -> None:
    outcome = suite("--clause=DECO-05", "-n0", "-k", "zero-values", adapter="tests/controls.py:controls")

    assert outcome.code == 0
    assert outcome.last_line.startswith("as expected: ")
    assert "SHOULD DECO-05[zero-values] WRONG" in outcome.output


def test_the_adapter_is_found_from_the_directory_of_invocation(tmp_path: pathlib.Path) -> None:
    assert Suite(tmp_path)("--clause=GRAD-02", "-n1", adapter=f"./tests/../{TAPE}").code == 0
