"""Reproducers: what is made of a clause, and that scripts end as they say."""

from __future__ import annotations

import ast
import builtins
import inspect
import pathlib
import subprocess
import sys
import textwrap
from dataclasses import asdict
from typing import Any

import pytest
from reproducible import WORDS
from running import CHECKOUT, Outcome, Suite, environment, once

from ckptspec.adapters import words
from ckptspec.conformance.backend import Fact, Words
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import CHAPTERS, Clause, registry
from ckptspec.conformance.report import model
from ckptspec.conformance.reproducer import __main__ as runner
from ckptspec.conformance.reproducer import vocabulary, writing
from ckptspec.conformance.reproducer.fault import Fault
from ckptspec.conformance.reproducer.folding import folded
from ckptspec.conformance.reproducer.script import reproducer
from ckptspec.conformance.reproducer.source import bound, free
from ckptspec.conformance.reproducer.spelling import Unspeakable
from ckptspec.conformance.reproducer.trimming import Aim, label, trimmed
from ckptspec.conformance.reproducer.wrapping import LIMIT, wrapped
from ckptspec.conformance.under_test import NoReplay
from ckptspec.conformance.verdict import Verdict

TORCH = Words(
    (words.TORCH,), {"API": "torch.utils.checkpoint", "FORM": "use_reentrant=False", "DEVICE": ""},
    ("torch.utils.checkpoint",),
)  # fmt: skip
TAPE = Words((WORDS,))

# -- from a clause to the text of a program


def text_of(function: str) -> str:
    return "def main():\n" + "".join(f"    {line}\n" if line else "\n" for line in function.strip("\n").split("\n"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('y = f(x) if how == "a" else g(x)', "y = f(x)"),
        ('y = f(x) if how != "a" else (g or h)(x)', "y = (g or h)(x)"),
        ('y = {"a": [x], "b": {"x": x}}[how]', "y = [x]"),
        ('table = {"a": 1, "b": 2}\ny = table.get(how, 3)', 'table = {"a": 1, "b": 2}\ny = 1'),
        ('y = {"b": lambda: x}.get(how, lambda: f(x))()', "y = f(x)"),
        ('y = is_it and how == "a"', "y = is_it"),
        ('y = is_it or how == "a"', "y = True"),
        ('y = f(**{how: x})', "y = f(a=x)"),
        ("y = getattr(torch, how)", "y = torch.a"),
        ('if how == "b":\n    f(x)\nelif how.startswith("a"):\n    # why\n    g(x)\nelse:\n    h(x)', "# why\ng(x)"),
        ('if x:\n    f(x)\nelif how == "b":\n    g(x)', "if x:\n    f(x)"),
        ('if x:\n    f(x)\nelif how == "a":\n    g(x)\nelse:\n    h(x)', "if x:\n    f(x)\nelse:\n    g(x)"),
        ('if x:\n    f(x)\nelif how == "b":\n    g(x)\nelse:\n    h(x)', "if x:\n    f(x)\nelse:\n    h(x)"),
        ('def p():\n    if how == "a":\n        return x\n    f(x)', "def p():\n    return x"),
        ("y = [how for how in x]", 'how = "a"\ny = [how for how in x]'),
        ('y = f"{how}"', 'how = "a"\ny = f"{how}"'),
    ],
)  # fmt: skip
def test_what_parameters_decide_is_decided(text: str, expected: str) -> None:
    assert folded(text_of(text), {"how": "a"}).split() == text_of(expected).split()


CLAUSE = """
ops, probe, seen_twice, kept = under_test.ops, under_test.probe(), [], []

def region(x):
    return ops.sin(probe(x))

def program(checkpoint, x):
    kept.append(x)
    return checkpoint(region, x)

def without(checkpoint, x):
    return checkpoint(lambda x: ops.exp(x), x)

one = under_test.run(program, under_test.array())
under_test.run(without, under_test.array())

assert one.forward[probe] == 1, "the first"
assert one.backward[probe] == 1, "the second"
assert not kept, "the third"
"""


@pytest.mark.parametrize(
    ("aim", "gone", "left"),
    [
        (
            Aim("the second"),
            ["without", "kept, ", "the third", "seen_twice"],
            ["the first", "the second", "kept.append"],
        ),
        (Aim("the third"), ["without", "seen_twice"], ["the first", "the second", "the third"]),
        (Aim("", 1), ["without", "assert", "one.backward"], ["run(program"]),
        (Aim("", 2), ["program(checkpoint", "region", "assert"], ["run(without"]),
        (Aim("", 0), ["assert"], ["run(program", "run(without"]),
    ],
)
def test_what_does_not_show_the_fault_is_left_out(aim: Aim, gone: list[str], left: list[str]) -> None:
    text = trimmed(text_of(CLAUSE), aim)
    assert not [part for part in gone if part in text]
    assert not [part for part in left if part not in text]


def test_a_run_that_puts_in_place_what_the_assertion_reads_stays() -> None:
    text = text_of("""
kept = []

def program(checkpoint, x):
    kept.append(x)
    return checkpoint(under_test.ops.sin, x)

def other(checkpoint, x):
    return checkpoint(under_test.ops.exp, x)

under_test.run(program, under_test.array())
under_test.run(other, under_test.array())

assert kept, "nothing was kept"
""")
    left = trimmed(text, Aim("nothing was kept"))
    assert "run(program" in left
    assert "other" not in left


def test_a_comparison_that_fails_says_what_it_found() -> None:
    assert 'f"the second: {one.backward[probe]}"' in trimmed(text_of(CLAUSE), Aim("the second"))


def test_long_lines_are_broken_in_brackets() -> None:
    call = f"    y = {'f' * 20}({', '.join(f'argument_{i}=[{i}, {i}]' for i in range(12))})[0]"
    broken = wrapped(f"before\n{call}\nafter")
    assert max(map(len, broken.split("\n"))) <= LIMIT
    assert ast.unparse(ast.parse(broken.replace("    y", "y", 1))) == ast.unparse(
        ast.parse(f"before\n{call.strip()}\nafter")
    )


# -- every clause

MOST, ALL = 70, 110
"""Lines that are not blank: of nine scripts in ten, and of each."""


def faults(clause: Clause) -> list[Fault]:
    """One fault of each kind, in the clause's first case: every label that it has, and those of every clause."""
    parameters = "-".join(str(values[0]) for values in clause.each.values())
    evidence: list[dict[str, Any]] = [{}]
    if "explore" in clause.function.__code__.co_names:
        program = "def program(checkpoint, a, b, c):\n    return checkpoint(ops.sin, a)\n"
        program += "def backward(checkpoint, pull, a, b, c):\n    return pull()"
        evidence = [{"program": program, "primals": [{"shape": [2], "dtype": "float64", "values": [0.1, 0.2]}] * 3}]

    def fault(verdict: Verdict, **how: Any) -> Fault:
        return Fault(Record(clause.id, "only", parameters, verdict, message="as it was", evidence=evidence, **how))

    labels = {found for node in ast.walk(ast.parse(source_of(clause))) if (found := label(node))}
    return [
        fault(Verdict.WRONG, label="gradient"),
        fault(Verdict.FAIL, exception="RuntimeError", phase="backward"),
        fault(Verdict.FAIL, label=NoReplay.label),
        *(fault(Verdict.FAIL, label=found, control=found) for found in sorted(labels)),
    ]


def source_of(clause: Clause) -> str:

    return textwrap.dedent(inspect.getsource(clause.function))


def assert_is_whole(script: str, limit: int = 120) -> None:
    """A script is one that Python accepts, of which each name is there, with no long line and no import of ours."""
    tree = ast.parse(script)
    compile(tree, "<script>", "exec")
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    modules = {
        (node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    top = {name for statement in tree.body for name in bound(statement)}
    assert free(tree) - imported - top - set(dir(builtins)) <= {"__file__"}
    assert modules - set(sys.stdlib_module_names) <= {"torch", "numpy"}
    assert max(map(len, script.split("\n"))) <= limit
    assert "under_test" not in script
    if "torch.utils.checkpoint." in script:
        assert "import torch.utils.checkpoint\n" in script


#: What torch has no words for (keys, names of values); of drawn programs, and several processes, not every fault.
UNSPEAKABLE = {"RNG-20", "SEL-28", "FUZZ-03", "FUZZ-12"} | {
    clause.id for clause in registry().values() if Fact.PROCESSES in clause.needs
}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_clause_has_scripts_in_the_words_of_torch(chapter: str) -> None:
    silent = set()
    for clause in registry().values():
        if clause.chapter == chapter.upper():
            for fault in faults(clause):
                try:
                    script = reproducer(clause, fault, TORCH, "torch 1")
                except Unspeakable:
                    silent.add(clause.id)
                else:
                    assert_is_whole(script)
    assert silent == {id for id in UNSPEAKABLE if id.startswith(f"{chapter.upper()}-")}


def test_scripts_are_short() -> None:
    lengths = []
    for clause in registry().values():
        if clause.id not in UNSPEAKABLE:
            script = reproducer(clause, faults(clause)[0], TORCH, "torch 1")
            lengths.append(sum(bool(line.strip()) for line in script.split("\n")))
    lengths.sort()
    assert lengths[len(lengths) * 9 // 10] <= MOST
    assert lengths[-1] <= ALL


@pytest.mark.parametrize(
    "text",
    [
        'a "quoted" text"',
        '"""',
        "ends in a backslash \\",
        "two\nlines\r\nand \\N{BULLET} \\u12 \\x1",
        "nothing\0here \x1b[31m \ud800 \u202e",
        "x" * 10_000_000,
        "",
    ],
    ids=["quotes", "three quotes", "backslash", "escapes", "control", "long", "empty"],
)
def test_what_an_implementation_says_breaks_no_script(text: str) -> None:
    record = Record("GRAD-02", "only", "", Verdict.FAIL, "backward", exception=text[:60], message=text, evidence=[{}])
    script = reproducer(registry()["GRAD-02"], Fault(record), TORCH, f"torch {text[:50]}")
    assert_is_whole(script, limit=240)  # for a name of an exception with characters that are written out
    docstring = ast.get_docstring(ast.parse(script))
    assert docstring is not None
    assert len(docstring) < 1000
    assert all(c.isprintable() or c == "\n" for c in docstring)


# -- scripts that are run


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Two clauses on implementations with a fault each."""
    chosen = ("--clause=GRAD-13", "--clause=MEM-09", "--case-timeout=4")
    return once(
        tmp_path_factory,
        "reproducible",
        lambda folder: Suite(folder)("-n2", *chosen, adapter="tests/reproducible.py:adapter"),
    )


def script_of(outcome: Outcome, case: str) -> pathlib.Path:
    return outcome.path.parent / outcome.cases[case]["reproducer"]


def run(script: pathlib.Path, *arguments: str) -> tuple[int, str]:
    """The exit code of a script in a process of its own, and what it prints."""
    ended = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment(PYTHONPATH=str(CHECKOUT / "tests")),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return ended.returncode, ended.stdout


def test_each_failed_case_has_a_script_and_no_other_case(outcome: Outcome) -> None:
    broken = {"WRONG", "FAIL", "CRASH", "TIMEOUT"}
    assert set(outcome.verdicts.values()) >= broken | {"PASS"}
    for case in outcome.cases.values():
        assert bool(case["reproducer"]) is (case["verdict"] in broken)
    written = {path.name for path in (outcome.path.parent / "partial-reproducers").iterdir()}
    named = [pathlib.Path(case["reproducer"]).name for case in outcome.cases.values() if case["reproducer"]]
    assert sorted(named) == sorted(written)


def test_every_script_shows_its_fault_and_none_without_checkpoint(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(CHECKOUT / "tests"))
    assert runner.main(["-n", "2", str(outcome.path)]) == 0
    said = capsys.readouterr().out
    count = sum(bool(case["reproducer"]) for case in outcome.cases.values())
    # Without a checkpoint nothing is replayed, of the two faults that are about replays.
    assert said == f"{count} of {count} reproducers show their fault and hold without checkpoint (3 by exemption)\n"


@pytest.mark.parametrize("fault", ["zero gradients", "raises in backward", "two replays", "aborts", "keeps everything"])
def test_without_the_fault_a_script_ends_with_0_and_with_another_one_with_2(
    outcome: Outcome, fault: str, tmp_path: pathlib.Path
) -> None:
    clause = "MEM-09" if fault == "keeps everything" else "GRAD-13"
    text, script = script_of(outcome, f"{clause}[{fault}]").read_text(), tmp_path / "script.py"
    assert text.count(f'"{fault}"') == 1
    script.write_text(text.replace(f'"{fault}"', '"right"'))
    assert run(script)[0] == 0
    script.write_text(text.replace(f'"{fault}"', '"raises in forward"'))
    assert run(script)[0] == 2
    script.write_text(text.replace("import reproducible", "import no_such_module as reproducible"))
    assert run(script)[0] == 2


def test_another_label_than_the_reported_one_ends_a_script_with_2(outcome: Outcome, tmp_path: pathlib.Path) -> None:
    script = tmp_path / "script.py"
    wrong = script_of(outcome, "GRAD-13[zero gradients]").read_text()
    script.write_text(wrong.replace('"zero gradients"', '"zero values"'))
    code, said = run(script)
    assert code == 2
    assert "observed: value: " in said
    bound = script_of(outcome, "GRAD-13[two replays]").read_text()
    script.write_text(bound.replace('startswith("backward ran', 'startswith("forward ran'))
    assert run(script)[0] == 2


def test_a_script_prints_what_it_expected_and_what_it_observed(outcome: Outcome) -> None:
    code, said = run(script_of(outcome, "GRAD-13[zero gradients]"))
    expected, observed = said.strip().split("\n", 1)
    assert (code, expected) == (1, "expected: the value and the gradients of the plain call")
    zeros = "array([-0., -0., -0., -0.])"
    assert observed.startswith(f"observed: gradient: [{zeros}, {zeros}] instead of")
    assert run(script_of(outcome, "GRAD-13[two replays]"))[1] == (
        "expected: seen.backward[probe] == 1\nobserved: backward ran the region more than once: 2\n"
    )


def test_a_docstring_says_what_a_bug_report_must(outcome: Outcome) -> None:
    docstring = ast.get_docstring(ast.parse(script_of(outcome, "GRAD-13[raises in backward]").read_text()))
    assert docstring is not None
    title, _, specified, observed, *_ = docstring.split("\n")
    assert title == "GRAD-13 on faults 1, raises in backward: LookupError in backward."
    assert specified == f"Specified: {registry()['GRAD-13'].sentence}"
    assert observed == "Observed: it \"fails\" \\ here and '''there'''"


def test_a_drop_in_has_reproducers_that_call_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    library = tmp_path / "our_library.py"
    library.write_text(
        "import torch\n\n"
        "def checkpoint(function, *args, **kwargs):\n"
        "    return function(*(a.detach() if torch.is_tensor(a) else a for a in args), **kwargs)\n"
    )
    outcome = Suite(tmp_path)("-n0", "--clause=GRAD-02", adapter=f"dropin:{library}")
    script = script_of(outcome, "GRAD-02[only]").read_text()
    assert "    return our_library.checkpoint(function, *args, **kwargs)\n" in script
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert runner.main([str(outcome.path)]) == 0
    assert capsys.readouterr().out.startswith("1 of 1 reproducers")


@pytest.mark.parametrize(("inputs", "expected"), [(None, [3.0, 2.0]), ([0], [3.0]), ([1], [2.0])])
def test_backward_in_the_words_of_torch_goes_to_the_chosen_inputs(
    inputs: list[int] | None, expected: list[float]
) -> None:
    torch = pytest.importorskip("torch")
    names: dict[str, Any] = {}
    for definition in vocabulary.read(
        [pathlib.Path(f).read_text() for f in TORCH.files], TORCH.names, {"backward=", "inputs="}
    ).needed(["vjp", "torch"]):
        exec(definition.text, names)
    _, pull = names["vjp"](torch.multiply, torch.tensor(2.0), torch.tensor(3.0))

    assert [g.item() for g in pull(inputs=inputs)] == expected


# -- a run's scripts


def record(case: str, **how: Any) -> Record:
    clause, _, inside = case.rstrip("]").partition("[")
    variant, _, parameters = inside.partition("-")
    return Record(clause, variant, parameters, Verdict.WRONG, label="gradient", evidence=[{}], **how)


def described(**variants: Words | None) -> dict[str, Any]:
    return {
        "name": "torch",
        "version": "1",
        "words": {name: found and asdict(found) for name, found in variants.items()},
    }


def test_a_variant_without_words_has_no_scripts() -> None:
    records = [record("GRAD-02[one]"), record("GRAD-02[other]"), record("RNG-20[one]")]
    found, troubles = writing.scripts(records, registry(), described(one=TORCH, other=None), 60)
    assert (list(found), troubles) == (["GRAD-02[one]"], [])


def test_words_that_are_wrong_cost_no_report(tmp_path: pathlib.Path) -> None:
    (tmp_path / "wrong.py").write_text("def checkpoint(:\n")
    wrong, absent = Words((str(tmp_path / "wrong.py"),)), Words((str(tmp_path / "absent.py"),))
    records = [record("GRAD-02[one]"), record("GRAD-03[one]"), record("GRAD-02[other]"), record("GRAD-02[right]")]
    found, troubles = writing.scripts(records, registry(), described(one=wrong, other=absent, right=TORCH), 60)
    assert list(found) == ["GRAD-02[right]"]
    assert [trouble.partition(": ")[0] for trouble in troubles] == [
        "no reproducer of GRAD-02[one]",
        "no reproducer of GRAD-02[other]",
    ]


def test_names_of_files_are_safe_and_different() -> None:
    cases = ["A[x/../y]", "A[x y]", "A[x-y]", "A[ü]", f"A[{'z' * 300}]", f"A[{'z' * 300}y]"]
    places = writing.places(cases, is_whole=True)
    assert len(set(places.values())) == len(cases)
    for place in places.values():
        folder, name = place.split("/")
        assert folder == "reproducers"
        assert len(name) < 200
        assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-")


def test_what_an_earlier_run_left_is_removed(tmp_path: pathlib.Path) -> None:
    places = {"A[x]": "reproducers/A-x.py", "A[y]": "reproducers/A-y.py"}
    writing.write(tmp_path, {"A[x]": "1\n", "A[y]": "2\n"}, places, is_whole=True)
    writing.write(tmp_path, {"A[y]": "3\n"}, {"A[y]": places["A[y]"]}, is_whole=True)
    assert {p.name: p.read_text() for p in (tmp_path / "reproducers").iterdir()} == {"A-y.py": "3\n"}
    writing.write(tmp_path, {}, {}, is_whole=False)
    assert (tmp_path / "reproducers").exists()
    writing.write(tmp_path, {}, {}, is_whole=True)
    assert not (tmp_path / "reproducers").exists()


@pytest.mark.parametrize(
    ("as_is", "plain", "code", "said"),
    [
        (1, 0, 0, "1 of 1 reproducers show their fault and hold without checkpoint (0 by exemption)"),
        (0, 0, 1, "script.py ends with 0, not 1: no fault"),
        (2, 0, 1, "script.py ends with 2, not 1: trouble"),
        (1, 1, 1, "script.py --plain ends with 1, not 0: a fault"),
    ],
)
def test_the_runner_tells_of_each_script_that_ends_otherwise(
    as_is: int,
    plain: int,
    code: int,
    said: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("no fault", "a fault", "trouble")
    (tmp_path / "script.py").write_text(
        f"import sys\ncode = {plain} if '--plain' in sys.argv else {as_is}\nprint({words}[code])\nsys.exit(code)"
    )
    report = {"clauses": [{"cases": [{"reproducer": "script.py"}, {"reproducer": ""}]}]}
    monkeypatch.setattr(model, "load", lambda path: report)
    (tmp_path / "report.json").touch()
    assert runner.main([str(tmp_path)]) == code
    assert said in capsys.readouterr().out


def test_the_runner_needs_reports(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main([str(tmp_path)]) == 2
    assert "there is no report.json below" in capsys.readouterr().out
    (tmp_path / "report.json").write_text("{}")
    assert runner.main([str(tmp_path)]) == 2
    assert "is no report" in capsys.readouterr().out


def test_a_report_in_which_nothing_failed_is_good(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "report.json").touch()
    monkeypatch.setattr(model, "load", lambda path: {"clauses": [{"cases": [{"reproducer": ""}]}]})
    assert runner.main([str(tmp_path)]) == 0
