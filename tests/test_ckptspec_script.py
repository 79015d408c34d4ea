"""The script `ckptspec`: how it is started, its help, how it tells a mistake, and where it writes."""

from __future__ import annotations

import importlib
import pathlib
import re
import subprocess
import sys
import sysconfig
import tomllib

import pytest
from invoking import COMMAND, ckptspec, on_terminal, record, refused, report, saved
from running import CHECKOUT, environment

from ckptspec.conformance.baseline import Known
from ckptspec.conformance.clause import SPEC_REVISION
from ckptspec.conformance.command.group import NAMES
from ckptspec.conformance.verdict import Verdict


def ended(*command: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """A process that has ended, with what it said."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=CHECKOUT,
        env=environment(**variables),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


# -- How it is started -------------------------------------------------------------------------------------------------


def test_the_script_is_what_the_package_says() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["ckptspec"].partition(":")

    assert callable(getattr(importlib.import_module(module), function))
    assert {re.match(r"\w+", name)[0] for name in project["optional-dependencies"]["cli"]} == {"click", "rich"}  # type: ignore[index]


def test_the_installed_script_and_the_module_say_the_same() -> None:
    script = pathlib.Path(sysconfig.get_path("scripts"), "ckptspec")
    if not script.exists():
        pytest.skip("this environment has no install of ckptspec with its script")

    installed, module = ended(script, "--version"), ended(*COMMAND, "--version")

    assert (installed.returncode, installed.stdout) == (module.returncode, module.stdout)
    assert re.fullmatch(rf"ckptspec \S+, specification revision {SPEC_REVISION}\n", module.stdout)


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_one_line_says_what_to_install(missing: str) -> None:
    program = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from ckptspec.conformance.command.__main__ import main\nsys.exit(main())"
    )

    result = ended(sys.executable, "-c", program)

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"ckptspec: {missing} is not installed: pip install 'ckptspec[cli]'\n"


def test_a_run_of_the_suite_needs_neither_click_nor_rich() -> None:
    program = (
        "import sys; sys.modules['click'] = sys.modules['rich'] = None\n"
        "import ckptspec.conformance.plugin, ckptspec.conformance.command.progress"
    )

    assert ended(sys.executable, "-c", program).returncode == 0


# -- Help and mistakes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "baseline update"])
def test_help_is_a_sentence_and_an_example(name: str) -> None:
    lines = ckptspec(*name.split(), "--help").stdout.splitlines()

    assert lines[0].startswith(f"Usage: ckptspec {name} ")
    first = " ".join(line.strip() for line in lines[2 : lines.index("", 2)])
    assert re.fullmatch(r"[A-Z].*\.", first)
    assert f"  ckptspec {name.split()[0]}" in "\n".join(lines)
    assert max(map(len, lines)) <= 100


def test_the_list_of_subcommands_says_what_each_does() -> None:
    lines = ckptspec("--help").stdout.splitlines()

    for name in NAMES:
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(line.split()) > 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rnu"], "No such command 'rnu'"),
        (["--nonsense"], "No such option"),
        (["explain"], "Missing argument 'ID' (see ckptspec explain --help)"),
        (["diff", "a"], "Missing argument 'AFTER'"),
        (["baseline", "updaet"], "No such command 'updaet'"),
        (["new-adapter", "x", "--kind=other"], "'other' is not one of 'functional', 'torch'"),
        (["repro", "\x1b[31m\n", "A"], "there is no report \\x1b[31m"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], says: str) -> None:
    assert says in refused(*arguments)


def test_a_file_that_cannot_be_read_or_written_is_one_line(tmp_path: pathlib.Path) -> None:
    path = saved(tmp_path / "given", report(record("GRAD-01", Verdict.FAIL, "too often")))
    (tmp_path / "file").write_text("in the way")

    assert "can't be written" in refused("baseline", "update", path, tmp_path / "file" / "known.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    assert "binary.toml: " in refused("baseline", "update", path, tmp_path / "binary.toml")


# -- Where it writes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["clauses", "--json"], ["clauses"], ["explain", "GRAD-01"]])
def test_a_reader_that_goes_away_is_told_nothing(arguments: list[str]) -> None:
    with subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=CHECKOUT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""

    assert process.returncode == 1


def test_an_output_without_our_characters_shows_others(tmp_path: pathlib.Path) -> None:
    (tmp_path / "report.json").write_text("{}")

    result = ended(*COMMAND, "verify", tmp_path, PYTHONIOENCODING="latin-1")

    assert (result.returncode, result.stderr) == (1, "")
    assert result.stdout.startswith(f"? {tmp_path}")


def test_a_terminal_shows_a_table_and_a_pipe_lines() -> None:
    code, drawn = on_terminal(*COMMAND, "clauses", "GRAD-0[12]", directory=CHECKOUT)
    piped = ended(*COMMAND, "clauses", "GRAD-0[12]").stdout

    assert code == 0
    assert "┃" in drawn
    assert "GRAD-02" in drawn
    assert [line.split("\t")[:2] for line in piped.splitlines()] == [["GRAD-01", "MUST"], ["GRAD-02", "MUST"]]


def test_text_of_an_implementation_is_only_text_on_a_terminal_too(tmp_path: pathlib.Path) -> None:
    hostile = "[red]x[/red] \x1b]0;title\x07\x1b[2J :smile:"
    known = [Known("GRAD-01", Verdict.FAIL, hostile, label=hostile)]
    failing = report(record("GRAD-01", Verdict.FAIL, hostile), known=known, name="lib")
    saved(tmp_path / "lib" / "cpu", failing)

    code, drawn = on_terminal(*COMMAND, "explain", "GRAD-01", f"--reports={tmp_path}", directory=CHECKOUT)

    assert code == 0, drawn
    assert "\x1b[2J" not in drawn
    assert "\x1b]0;" not in drawn
    text = "".join(re.sub(r"\x1b\[[0-9;]*m", "", drawn).split())
    assert "[red]x[/red]" in text
    assert ":smile:" in text
