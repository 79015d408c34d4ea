"""`ckptspec clauses`, `explain`, `render`, `verify` and `repro`: what is said of a specification and of reports."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
from invoking import case, ckptspec, record, refused, report, saved

from ckptspec.conformance import witnessed
from ckptspec.conformance.baseline import Known
from ckptspec.conformance.clause import registry
from ckptspec.conformance.verdict import Verdict

HOSTILE = "[bold]x[/] \x1b[31mred\x07 <script>\u202e" + "y" * 20_000


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder of the test's own, in which it runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- clauses -----------------------------------------------------------------------------------------------------------


def ids(*arguments: str) -> list[str]:
    return [line.partition("\t")[0] for line in ckptspec("clauses", *arguments).stdout.splitlines()]


def test_every_clause_is_listed_in_order() -> None:
    assert ids() == list(registry())


def test_clauses_are_found_by_id_and_by_text() -> None:
    assert ids("grad-0[12]") == ["GRAD-01", "GRAD-02"]
    assert "STOP-06" in ids("except exception")


@pytest.mark.parametrize(
    ("option", "holds"),
    [
        ("--level=should", lambda c: c.level == "SHOULD"),
        ("--profile=core", lambda c: c.profile == "core"),
        ("--chapter=rng", lambda c: c.chapter == "RNG"),
        ("--tests=early_stop", lambda c: "EARLY_STOP" in [t.name for t in c.tests]),
        ("--tests=core", lambda c: not c.tests),
    ],
)
def test_options_choose_clauses(option: str, holds: Any) -> None:
    assert ids(option) == [c.id for c in registry().values() if holds(c)] != []


def test_options_add_up() -> None:
    assert set(ids("--chapter=RNG", "--level=MUST")) == set(ids("--chapter=RNG")) & set(ids("--level=MUST"))


def test_clauses_as_json() -> None:
    (found,) = json.loads(ckptspec("clauses", "GRAD-05", "--json").stdout)

    assert found["id"] == "GRAD-05"
    assert found["tests"] == ["CAPTURED_ONLY"]
    assert found["sentence"] == registry()["GRAD-05"].sentence


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["GRDA-01"], "no clause has the id or the text GRDA-01; nearest: GRAD-01"),
        (["--chapter=GARD"], "there is no chapter GARD; nearest: GRAD"),
        (["--tests=EARLY_STPO"], "there is no capability EARLY_STPO; nearest: EARLY_STOP"),
        (["--level=PERHAPS"], "'PERHAPS' is not one of"),
        (["GRAD-01", "--level=MAY"], "no clause matches GRAD-01 and these options"),
    ],
)
def test_a_list_of_nothing_is_a_mistake(arguments: list[str], says: str) -> None:
    assert says in refused("clauses", *arguments)


# -- explain -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clause", list(registry().values())[::20], ids=lambda clause: clause.id)
def test_a_clause_is_explained_with_all_that_is_known(clause: Any) -> None:
    text = ckptspec("explain", clause.id.lower()).stdout

    assert text.startswith(f"{clause.id} ({clause.level}): {clause.sentence}\n")
    assert (f"Not promised: {clause.not_promised}" in text) is bool(clause.not_promised)
    assert f"Source: {clause.source}" in text
    assert f"def {clause.name}(" in text
    assert all(kill["witness"] in text for kill in witnessed.committed().get(clause.id, []))
    assert "No report in reports speaks of it." in text


def test_who_breaks_a_clause_comes_from_the_reports(folder: pathlib.Path) -> None:
    failure = record("GRAD-05", Verdict.WRONG, "gradient", parameters="a")
    known = [Known("GRAD-05", Verdict.WRONG, "it never did", label="gradient")]
    passing = record("GRAD-05", Verdict.PASS, parameters="b")
    saved(folder / "good" / "a" / "cpu", report(record("GRAD-05", Verdict.PASS), name="right"))
    saved(folder / "good" / "b" / "cpu", report(failure, passing, known=known))
    (folder / "good" / "c" / "cpu").mkdir(parents=True)
    (folder / "good" / "c" / "cpu" / "report.json").write_text("{}")

    lines = ckptspec("explain", "GRAD-05", "--reports=good").stdout.splitlines()

    assert lines[-3:-1] == ["mylib 1, only, cpu\tWRONG\tgradient\tit never did", "right 1, only, cpu\tPASS\t\t"]
    assert lines[-1].startswith("left out: good/c/cpu/report.json is no report")


def test_an_unknown_clause_is_told_with_those_that_are_near() -> None:
    assert refused("explain", "GRAD-99").startswith("there is no clause GRAD-99; nearest: GRAD-")
    assert "does not exist" in refused("explain", "GRAD-01", "--reports=nowhere")


# -- render ------------------------------------------------------------------------------------------------------------


def test_a_folder_of_reports_is_drawn(folder: pathlib.Path) -> None:
    saved(folder / "reports" / "mylib" / "cpu", report(record("GRAD-01", Verdict.PASS)))

    result = ckptspec("render")

    assert result.stdout == "wrote reports/README.md and reports/index.html: 1 of 1 reports\n"
    assert "| GRAD | 1 / 1 / 1 |" in (folder / "reports" / "README.md").read_text()
    assert "GRAD-01" in (folder / "reports" / "index.html").read_text()


def test_a_folder_without_reports_is_not_drawn(folder: pathlib.Path) -> None:
    (folder / "reports").mkdir()

    assert refused("render").startswith("there is no report in reports")
    assert "does not exist" in refused("render", "nowhere")
    assert list((folder / "reports").iterdir()) == []


# -- verify ------------------------------------------------------------------------------------------------------------


def edited(folder: pathlib.Path, place: tuple[Any, ...], value: object) -> pathlib.Path:
    """A report with something else in one place, and a footer that fits."""
    content = report(record("GRAD-01", Verdict.PASS), record("GRAD-02", Verdict.FAIL, "too often"))
    *way, last = place
    inner: Any = content
    for step in way:
        inner = inner[step]
    inner[last] = value
    return saved(folder, content)


def test_a_whole_report_is_valid(folder: pathlib.Path) -> None:
    path = saved(folder, report(record("GRAD-01", Verdict.PASS)))

    result = ckptspec("verify", path)

    assert (result.exit_code, result.stdout) == (0, f"{path} is valid\n")


@pytest.mark.parametrize(
    ("place", "value", "says"),
    [
        (("clauses", 0, "cases", 0, "verdict"), "WRONG", "the counts are not those of its cases"),
        (("counts", "only", "MUST", "PASS"), 2, "the counts are not those of its cases"),
        (("clauses", 0, "cases", 0, "case"), "GRAD-02[only]", "GRAD-02[only] is there 2 times"),
        (("clauses", 0, "cases", 0, "clause"), "GRAD-03", "GRAD-01[only] stands under GRAD-01"),
        (
            ("clauses", 0, "cases", 0, "variant"),
            "other",
            "GRAD-01[only] is of a variant that the adapter does not have",
        ),
        (("run", "good"), True, "GRAD-02[only] is unexpected, yet the run is said to be good"),
        (
            ("clauses", 1, "cases", 0, "reproducer"),
            "reproducers/gone.py",
            "GRAD-02[only]: there is no file reproducers/gone.py",
        ),
        (("surprise",), 1, "schema: the whole: Additional properties are not allowed"),
        (("clauses", 0, "cases", 0, "verdict"), "FINE", "schema: clauses/0/cases/0/verdict: 'FINE' is not one of"),
    ],
)
def test_a_report_that_contradicts_itself_is_not_valid(
    folder: pathlib.Path, place: tuple[Any, ...], value: object, says: str
) -> None:
    result = ckptspec("verify", edited(folder, place, value))

    assert result.exit_code == 1
    assert f"✗ {folder / 'report.json'}: {says}" in result.stdout


def test_one_bad_report_among_good_ones_is_named(folder: pathlib.Path) -> None:
    good = saved(folder / "good", report(record("GRAD-01", Verdict.PASS)))
    bad = saved(folder / "bad", report(record("GRAD-01", Verdict.PASS)))
    bad.write_text(bad.read_text().replace('"PASS"', '"FAIL"'))

    result = ckptspec("verify", good, bad)

    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == f"{good} is valid"
    assert result.stdout.splitlines()[1].startswith(f"✗ {bad} is not whole")


def test_without_jsonschema_a_line_says_so(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = ckptspec("verify", saved(folder, report(record("GRAD-01", Verdict.PASS))))

    assert result.exit_code == 0
    assert result.stderr == "the schema is not checked: pip install 'ckptspec[schema]'\n"


def test_without_jsonschema_too_nothing_is_a_traceback(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    result = ckptspec("verify", edited(folder, ("clauses", 0, "cases", 0, "verdict"), "FINE"))

    assert result.exit_code == 1
    assert "its parts are not those of a report: ValueError 'FINE' is not a valid Verdict" in result.stdout


# -- repro -------------------------------------------------------------------------------------------------------------


def with_scripts(folder: pathlib.Path, **scripts: str) -> pathlib.Path:
    """A report of cases a, b, …, each with a script that ends in its own way; the passing case has none."""
    failing = [record("GRAD-01", Verdict.FAIL, "too often", parameters=name) for name in scripts]
    content = report(*failing, record("GRAD-02", Verdict.PASS))
    case(content, "GRAD-02[only]")["reproducer"] = ""
    for name, script in scripts.items():
        case(content, f"GRAD-01[only-{name}]")["reproducer"] = f"scripts/{name}.py"
        (folder / "scripts").mkdir(exist_ok=True)
        (folder / "scripts" / f"{name}.py").write_text(script)
    return saved(folder, content)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("raise SystemExit(1)", 1),
        ("", 0),
        ("raise SystemExit(2)", 2),
        ("import os; os.abort()", 134),
    ],
)
def test_a_script_is_printed_or_run(folder: pathlib.Path, script: str, code: int) -> None:
    path = with_scripts(folder, a=script)

    printed, run = ckptspec("repro", path, "GRAD-01"), ckptspec("repro", path, "GRAD-01", "--run")

    assert (printed.exit_code, printed.stdout) == (0, script)
    assert run.exit_code == code


def test_a_script_is_run_plain(folder: pathlib.Path) -> None:
    path = with_scripts(folder, a="import sys; sys.exit(3 if sys.argv[1:] == ['--plain'] else 4)")

    codes = [ckptspec("repro", path, "GRAD-01", "--run", *options).exit_code for options in ([], ["--plain"])]

    assert codes == [4, 3]


def test_of_several_cases_one_must_be_named(folder: pathlib.Path) -> None:
    path = with_scripts(folder, a="first", b="second")

    assert "name one: 'GRAD-01[only-a]', 'GRAD-01[only-b]'" in refused("repro", path, "GRAD-01")
    assert ckptspec("repro", path, "GRAD-01[only-b]").stdout == "second"


def test_a_case_without_a_script_says_so(folder: pathlib.Path) -> None:
    path = with_scripts(folder, a="")

    assert refused("repro", path, "GRAD-02") == "GRAD-02 has no reproducer; its verdict is PASS"
    assert refused("repro", path, "GRAD-02[only]") == "GRAD-02[only] has no reproducer; its verdict is PASS"
    assert refused("repro", path, "GRAD-99").startswith("the report has no GRAD-99; nearest: GRAD-0")


@pytest.mark.parametrize("place", ["../outside.py", "/etc/passwd"])
def test_a_script_outside_of_the_report_is_neither_shown_nor_run(folder: pathlib.Path, place: str) -> None:
    (folder / "outside.py").write_text("")
    content = report(record("GRAD-01", Verdict.FAIL, "too often"))
    case(content, "GRAD-01[only]")["reproducer"] = place
    path = saved(folder / "reports", content)

    assert "lies outside of the report's folder" in refused("repro", path, "GRAD-01", "--run")


# -- Text of an implementation -----------------------------------------------------------------------------------------


def test_text_of_an_implementation_is_only_text(folder: pathlib.Path) -> None:
    known = [Known("GRAD-01", Verdict.FAIL, HOSTILE, label=HOSTILE)]
    bad = report(record("GRAD-01", Verdict.FAIL, HOSTILE), name=HOSTILE, known=known)
    path = saved(folder / "reports" / "mylib" / "cpu", bad)
    good = saved(folder / "good", report(record("GRAD-01", Verdict.PASS)))

    shown = [ckptspec("explain", "GRAD-01"), ckptspec("diff", good, path), ckptspec("repro", path, "GRAD-01")]

    for text in (result.output for result in shown):
        assert not {"\x1b", "\x07", "\u202e"} & set(text)
        assert len(text) < 20_000
    assert "[bold]x[/] \\x1b[31mred" in shown[0].output
