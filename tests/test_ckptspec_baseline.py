"""`ckptspec baseline update`, and the lists that an entry of a baseline may have."""

from __future__ import annotations

import pathlib
import tomllib
from typing import Any

import pytest
from invoking import ckptspec, record, refused, report, saved

from ckptspec.conformance import baseline
from ckptspec.conformance.baseline import BaselineError, Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import registry
from ckptspec.conformance.verdict import Verdict

FAIL, WRONG, PASS = Verdict.FAIL, Verdict.WRONG, Verdict.PASS
AB = ("a", "b")


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "known.toml"


def update(file: pathlib.Path, *records: Record, options: tuple[str, ...] = (), **how: Any) -> str:
    """What updating from a report of these records says."""
    path = saved(file.parent / "given", report(*records, **how))
    result = ckptspec("baseline", "update", path, file, *options)
    assert result.exit_code == 0, result.output
    return result.stdout


def entries(file: pathlib.Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(file.read_text()).get("known", [])
    return found


def grid(*failing: str, clause: str = "GRAD-01") -> list[Record]:
    """Cases of variants a and b with parameters x and y, those that are named failing."""
    places = [(variant, parameters) for variant in AB for parameters in "xy"]
    return [
        record(clause, FAIL if v + p in failing else PASS, "too often" if v + p in failing else "", v, p)
        for v, p in places
    ]


# -- New entries -------------------------------------------------------------------------------------------------------


def test_a_new_failure_is_entered_and_refused_until_its_reason_is_written(file: pathlib.Path) -> None:
    failure = record("GRAD-01", FAIL, "too often")

    said = update(file, failure, record("GRAD-02", PASS))

    assert said == f"{file}: 1 new, 0 stale\nreplace each TODO by a reason\n"
    assert entries(file) == [{"clause": "GRAD-01", "verdict": "FAIL", "label": "too often", "reason": "TODO"}]
    with pytest.raises(BaselineError, match="entry 1: the reason is still to be written"):
        baseline.read(file, registry(), "cpu", "1")
    file.write_text(file.read_text().replace("TODO", "it always did"))
    (known,) = baseline.read(file, registry(), "cpu", "1")
    assert known.covers(failure.to_json())
    assert known.agrees(failure.to_json())


def test_a_second_update_enters_nothing(file: pathlib.Path) -> None:
    update(file, record("GRAD-01", FAIL, "too often"))
    before = file.read_text()

    said = update(file, record("GRAD-01", FAIL, "too often"))

    assert (said, file.read_text()) == (f"{file}: 0 new, 0 stale\n", before)


@pytest.mark.parametrize(
    ("failing", "chosen"),
    [
        (["ax", "ay", "bx", "by"], [{}]),
        (["ax", "ay"], [{"variant": "a"}]),
        (["ax", "bx"], [{"cases": "x"}]),
        (["by"], [{"cases": "y", "variant": "b"}]),
        (["ax", "ay", "bx"], [{"variant": "a"}, {"cases": "x", "variant": "b"}]),
    ],
)
def test_cases_that_fail_alike_are_one_entry(file: pathlib.Path, failing: list[str], chosen: list[Any]) -> None:
    update(file, *grid(*failing), variants=AB)

    common = {"clause": "GRAD-01", "verdict": "FAIL", "label": "too often", "reason": "TODO"}
    assert entries(file) == [common | one for one in chosen]
    known = [k for entry in baseline.entries(file.read_text(), file, registry()) for k in entry]
    covered = [r.variant + r.parameters for r in grid() if any(k.covers(r.to_json()) for k in known)]
    assert covered == failing


def test_some_of_many_variants_are_a_list(file: pathlib.Path) -> None:
    failing = [record("GRAD-01", FAIL, "too often", variant) for variant in AB]

    update(file, *failing, record("GRAD-01", PASS, variant="c"), variants=(*AB, "c"))

    assert [entry["variant"] for entry in entries(file)] == [["a", "b"]]


def test_what_fails_in_different_ways_are_different_entries(file: pathlib.Path) -> None:
    update(
        file, record("GRAD-01", FAIL, "too often", parameters="x"), record("GRAD-01", WRONG, "value", parameters="y")
    )

    assert [(e["cases"], e["verdict"], e["label"]) for e in entries(file)] == [
        ("x", "FAIL", "too often"),
        ("y", "WRONG", "value"),
    ]


def test_what_is_as_expected_is_not_entered(file: pathlib.Path) -> None:
    others = [record("GRAD-01", verdict) for verdict in (PASS, Verdict.REFUSED, Verdict.NOT_APPLICABLE, Verdict.ERROR)]
    should = next(c.id for c in registry().values() if c.level == "SHOULD")

    for one in [*others, record(should, FAIL, "too often")]:
        assert "0 new" in update(file, one)
    assert not file.exists()


def test_names_with_the_characters_of_globs_and_toml_stand_for_themselves(file: pathlib.Path) -> None:
    variant, parameters, label = 'a"[*]?', "x*\\", 'it said "no"\t\x7f'
    failing = record("GRAD-01", FAIL, label, variant, parameters)
    others = [record("GRAD-01", PASS, "", v, p) for v, p in ((variant, "xx\\"), ("ab", parameters))]

    update(file, failing, *others, variants=(variant, "ab"))

    ((known,),) = baseline.entries(file.read_text(), file, registry())
    assert [known.covers(r.to_json()) for r in (failing, *others)] == [True, False, False]
    assert known.agrees(failing.to_json())


def test_a_failure_on_an_accelerator_is_entered_for_it_alone(file: pathlib.Path) -> None:
    update(file, record("GRAD-01", FAIL, "too often"), device="cuda")

    assert entries(file)[0]["devices"] == ["cuda"]


# -- Entries that no longer hold ---------------------------------------------------------------------------------------

HEAD = "# What is known.\n\n"
FIRST = '# the first\n[[known]]\nclause = "GRAD-01"\nverdict = "FAIL"\nlabel = "too often"\nreason = "why"  # indeed\n'
SECOND = '[[ known ]]  # the second\nclause = "GRAD-02"\nverdict = "WRONG"\nlabel = "value"\nreason = """\nlong\n"""\n'
TAIL = "\n# the end\n"
GRAD_01, GRAD_02 = record("GRAD-01", FAIL, "too often"), record("GRAD-02", WRONG, "value")


def test_stale_entries_are_listed_and_kept(file: pathlib.Path) -> None:
    file.write_text(HEAD + FIRST + "\n" + SECOND + TAIL)

    said = update(file, record("GRAD-01", PASS), GRAD_02)

    assert said.splitlines() == ["entry 1, GRAD-01: stale: GRAD-01[only] is PASS", f"{file}: 0 new, 1 stale"]
    assert file.read_text() == HEAD + FIRST + "\n" + SECOND + TAIL


@pytest.mark.parametrize(
    ("records", "text"),
    [
        ([record("GRAD-01", PASS), GRAD_02], HEAD + SECOND + TAIL),
        ([GRAD_01, record("GRAD-02", PASS)], HEAD + FIRST + TAIL),
        ([record("GRAD-01", PASS), record("GRAD-02", PASS)], HEAD + TAIL.lstrip()),
    ],
)
def test_pruning_removes_stale_entries_and_nothing_else(file: pathlib.Path, records: list[Record], text: str) -> None:
    file.write_text(HEAD + FIRST + "\n" + SECOND + TAIL)

    update(file, *records, options=("--prune",))

    assert file.read_text().split() == text.split()
    assert "\n\n\n" not in file.read_text()


def test_an_entry_without_a_case_is_stale_in_a_whole_run_only(file: pathlib.Path) -> None:
    file.write_text(FIRST)

    assert "entry 1, GRAD-01: stale: there is no case GRAD-01[*]" in update(file, GRAD_02)
    assert "0 new, 0 stale" in update(file, GRAD_02, is_complete=False)


@pytest.mark.parametrize("verdict", [Verdict.NOT_RUN, Verdict.ERROR])
def test_a_case_of_which_nothing_is_known_makes_no_entry_stale(file: pathlib.Path, verdict: Verdict) -> None:
    file.write_text(FIRST)

    assert update(file, record("GRAD-01", verdict), options=("--prune",)) == f"{file}: 0 new, 0 removed\n"


def test_a_known_failure_that_fails_another_way_is_replaced_by_pruning_alone(file: pathlib.Path) -> None:
    file.write_text(FIRST)
    otherwise = record("GRAD-01", FAIL, "too late")

    kept = update(file, otherwise)
    assert kept.splitlines() == ["entry 1, GRAD-01: stale: GRAD-01[only] is FAIL too late", f"{file}: 0 new, 1 stale"]
    assert [entry["label"] for entry in entries(file)] == ["too often"]
    update(file, otherwise, options=("--prune",))
    assert [entry["label"] for entry in entries(file)] == ["too late"]


def test_an_entry_that_holds_for_some_cases_is_listed_and_never_removed(file: pathlib.Path) -> None:
    file.write_text(FIRST)

    said = update(file, *grid("ax"), variants=AB, options=("--prune",))

    assert said.startswith("entry 1, GRAD-01: holds for some of its cases only: GRAD-01[a-y] is PASS; GRAD-01[b-x] is")
    assert file.read_text() == FIRST


def test_entries_for_other_devices_and_versions_are_left_alone(file: pathlib.Path) -> None:
    file.write_text(FIRST + 'devices = ["cuda"]\n' + SECOND + 'when = ">=2"\n')

    said = update(file, record("GRAD-01", PASS), record("GRAD-02", PASS), options=("--prune",))

    assert said == f"{file}: 0 new, 0 removed\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[known", "known.toml: "),
        ('known = [{clause = "GRAD-01", verdict = "FAIL", label = "too often", reason = "why"}]', "can't be removed"),
        ("known = 3", "an entry begins with [[known]]"),
        (FIRST.replace("GRAD-01", "NOPE-01"), "entry 1: there is no clause NOPE-01"),
    ],
)
def test_a_file_that_is_no_baseline_is_left_alone(file: pathlib.Path, text: str, says: str) -> None:
    file.write_text(text)
    path = saved(file.parent / "given", report(record("GRAD-01", PASS)))

    assert says in refused("baseline", "update", path, file, "--prune")
    assert file.read_text() == text


# -- Lists -------------------------------------------------------------------------------------------------------------

LISTS = """\
[[known]]
clause = ["GRAD-01", "GRAD-02"]
variant = ["a", "b*"]
verdict = "FAIL"
label = "too often"
reason = "why"
"""


def read(file: pathlib.Path, text: str) -> list[Known]:
    file.write_text(text)
    return baseline.read(file, registry(), "cpu", "1")


def test_an_entry_with_lists_stands_for_one_of_each(file: pathlib.Path) -> None:
    assert read(file, LISTS) == [
        Known(clause, FAIL, "why", variant=variant, label="too often")
        for clause in ("GRAD-01", "GRAD-02")
        for variant in ("a", "b*")
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LISTS.replace('"GRAD-02"', '"NOPE-02"'), "there is no clause NOPE-02"),
        (LISTS.replace('["a", "b*"]', "[]"), r"variant = \[\] is no text or list"),
        (LISTS.replace('["a", "b*"]', "[1]"), r"variant = \[1\] is no text or list"),
        (LISTS.replace('"too often"', '["too often"]'), r"label = \['too often'\] is no text"),
        (LISTS + 'devices = "cpu"', "devices = 'cpu' is no text"),
        ('[[knwon]]\nclause = "GRAD-01"', "no such key: knwon"),
    ],
)
def test_a_mistake_in_a_list_is_named(file: pathlib.Path, text: str, says: str) -> None:
    with pytest.raises(BaselineError, match=says):
        read(file, text)
