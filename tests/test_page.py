"""index.html: one file that loads nothing, shows every report, and takes nothing that it shows for more than text."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import fnmatch
import hashlib
import html.parser
import json
import pathlib
import re
import shutil
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hostile import HOSTILE, HUGE
from running import CHECKOUT

from ckptspec.conformance import witnessed
from ckptspec.conformance.baseline import Known
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import registry
from ckptspec.conformance.gate import judge
from ckptspec.conformance.report import model, page, render
from ckptspec.conformance.verdict import Verdict

SOURCES = CHECKOUT / "conformance" / "report"
CLAUSES = {id: registry()[id] for id in ("API-04", "GRAD-01", "GRAD-02", "GRAD-13", "STOP-01", "STOP-10", "MEM-01")}

EVIDENCE: list[dict[str, Any]] = [
    {
        "replays": 2,
        "plain": {
            "forward": {"head": 1},
            "backward": {"head": 0},
            "held": {"after_forward": 4096, "after_backward": 0},
        },
        "checkpointed": {"forward": {"head": 1}, "backward": {"head": 2}},
        "difference": "gradient[0]: 1.5 plain, 2.5 checkpointed",
    },
    {"examples": 70, "discarded": 3, "replays": 12, "seed": None, "program": "return sin(v0)", "primals": []},
]

VERDICTS: dict[str, tuple[Verdict, Verdict]] = {
    "API-04": (Verdict.PASS, Verdict.NOT_APPLICABLE),
    "GRAD-01": (Verdict.PASS, Verdict.PASS),
    "GRAD-02": (Verdict.WRONG, Verdict.PASS),
    "GRAD-13": (Verdict.FAIL, Verdict.REFUSED),
    "STOP-01": (Verdict.PASS, Verdict.NOT_OFFERED),
    "STOP-10": (Verdict.CRASH, Verdict.TIMEOUT),
    "MEM-01": (Verdict.ERROR, Verdict.PASS),
}
"""Clause -> its verdicts on the two forms of the first implementation; on the second, everything passes."""


def record(clause: str, variant: str, verdict: Verdict) -> Record:
    made = Record(clause, variant, "", verdict, evidence=EVIDENCE)
    if verdict is Verdict.WRONG:
        return dataclasses.replace(made, label="gradient", message="the numbers are off", phase="backward")
    if verdict is Verdict.FAIL:
        return dataclasses.replace(made, label="too often", message="too often: 3 > 1")
    if verdict is Verdict.REFUSED:
        return dataclasses.replace(made, exception="TypeError", message="no such option", phase="forward")
    return dataclasses.replace(made, signal="SIGABRT") if verdict is Verdict.CRASH else made


def built(name: str, records: list[Record], known: list[Known] | None = None) -> model.Report:
    """A report as a run builds it."""
    variants: dict[str, list[str]] = {variant: ["KEYWORDS"] for variant in dict.fromkeys(r.variant for r in records)}
    host = {"name": "host", "version": "2", "facts": ["EAGER"]}
    return model.build(
        description={
            "name": name,
            "version": "1.2",
            "host": host,
            "variants": variants,
            "environment": {"python": "3"},
        },
        source={"asked": "some.py:adapter", "sha256": "0" * 64},
        clauses=CLAUSES,
        records=records,
        gate=judge(records, CLAUSES, known or [], is_whole=True),
        run={"device": "cpu", "clauses": [], "profiles": [], "isolated": True, "complete": True, "good": False},
        started=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    )


def put(folder: pathlib.Path, place: str, report: model.Report) -> None:
    model.write(folder / place / "report.json", model.dump(report))


def some_reports(folder: pathlib.Path) -> pathlib.Path:
    """Two implementations, one of them in two forms, with every kind of verdict; and a reproducer."""
    records = [
        record(clause, variant, verdict)
        for clause, verdicts in VERDICTS.items()
        for variant, verdict in zip(("first", "second"), verdicts, strict=True)
    ]
    known = [Known("GRAD-02", Verdict.WRONG, "it `always` did", label="gradient", link="https://example.org/1")]
    report = built("faulty", records, known)
    for clause in report["clauses"]:
        clause["cases"][0]["reproducer"] = "reproducers/one.py" if clause["id"] == "GRAD-02" else ""
    report["footer"] = model._footer(report)
    put(folder, "faulty/cpu", report)
    model.write(folder / "faulty/cpu/reproducers/one.py", "raise SystemExit(1)\n")
    put(folder, "good/cpu", built("good", [record(clause, "only", Verdict.PASS) for clause in CLAUSES]))
    render.draw(folder)
    return folder


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return some_reports(tmp_path_factory.mktemp("reports"))


# -- One file that loads nothing ---------------------------------------------------------------------------------------


class Outline(html.parser.HTMLParser):
    """The elements of a page, and the texts of its scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside in ("script", "style"):
            self.texts.append((self.inside, data))


def test_the_page_asks_for_no_other_file(reports: pathlib.Path) -> None:
    outline = Outline((reports / "index.html").read_text())
    addresses = {v for _, attributes in outline.elements for k, v in attributes.items() if k in ("src", "href", "data")}
    style = "".join(text for tag, text in outline.texts if tag == "style")

    assert addresses == {"#content", "#/", "README.md"}
    assert not {tag for tag, _ in outline.elements} & {"link", "img", "iframe", "object", "base", "form", "svg"}
    assert not re.search(r"url\(|@import|@font-face", style)


def test_the_page_lets_no_other_script_and_no_style_in(reports: pathlib.Path) -> None:
    outline = Outline((reports / "index.html").read_text())
    (policy,) = (a["content"] for _, a in outline.elements if a.get("http-equiv") == "Content-Security-Policy")
    script, style = ((SOURCES / name).read_text() for name in ("page.js", "page.css"))

    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    assert policy is not None
    assert dict(part.split(maxsplit=1) for part in policy.split(";")) == {
        "default-src": "'none'",
        "script-src": digest(script),
        "style-src": digest(style),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert ("script", script) in outline.texts
    assert ("style", style) in outline.texts


def test_the_script_makes_text_and_never_markup() -> None:
    script = (SOURCES / "page.js").read_text()

    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|DOMParser|\beval\b|Function\(|</", script)
    assert not re.search(r"\b(fetch|XMLHttpRequest|import)\b", script)
    assert re.findall(r"https?://[^`\s$]*", script) == ["https://github.com/"]  # to which reports are linked


def test_the_page_is_installed_with_the_suite() -> None:
    data = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]

    def is_installed(package: str, name: str) -> bool:
        return any(fnmatch.fnmatch(name, glob) for glob in data.get(package, []))

    for path in SOURCES.glob("page.*"):
        assert path.suffix == ".py" or is_installed("ckptspec.conformance.report", path.name), path.name
    assert is_installed("ckptspec.conformance", witnessed.PATH.name)


# -- What there is to show ---------------------------------------------------------------------------------------------


def test_a_clause_counts_with_its_worst_case(tmp_path: pathlib.Path) -> None:
    cases = [Record("GRAD-01", "only", p, v) for p, v in (("a", Verdict.PASS), ("b", Verdict.WRONG))]
    put(tmp_path, "some/cpu", built("some", cases))

    (verdict, found) = page.document(tmp_path)["results"]["some/cpu"]["only"]["GRAD-01"]

    assert verdict == "WRONG"
    assert [parameters for parameters, _ in found] == ["a", "b"]


def test_cases_that_came_out_alike_stand_there_once(reports: pathlib.Path) -> None:
    shown = page.document(reports)
    numbers = [
        number
        for variants in shown["results"].values()
        for clauses in variants.values()
        for _, cases in clauses.values()
        for _, number in cases
    ]

    assert len(numbers) == 3 * len(CLAUSES)
    assert sorted(set(numbers)) == list(range(len(shown["outcomes"])))
    assert len(shown["outcomes"]) < len(numbers) / 2


def test_nothing_of_a_case_is_lost(reports: pathlib.Path) -> None:
    shown = page.document(reports)
    for place, report in model.load_all(reports)[0].items():
        for clause in report["clauses"]:
            for case in clause["cases"]:
                _, cases = shown["results"][place][case["variant"]][clause["id"]]
                outcome = next(
                    shown["outcomes"][number] for parameters, number in cases if parameters == case["parameters"]
                )
                ours = {k: v for k, v in case.items() if v and k not in ("case", "clause", "variant", "parameters")}
                assert outcome == ours


def test_every_verdict_has_a_sign_and_a_word() -> None:
    assert set(page.WORDS) == set(Verdict)
    assert len({word for word, _ in page.WORDS.values()}) == len(Verdict)


def test_only_links_and_files_that_lead_somewhere_are_shown(tmp_path: pathlib.Path) -> None:
    (tmp_path / "there.py").touch()
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file name.py").touch()
    case = {"case": "", "clause": "", "variant": "", "parameters": ""}
    for link, file, is_shown in (
        ("https://example.org/a#b", "there.py", True),
        ("https://example.org/", "deep/file name.py", True),
        ("http://example.org", "deep", False),
        ("javascript:alert(1)", "../" + tmp_path.name + "/there.py", False),
        ("https://example.org/\n", "./there.py", False),
        ("https://user@example.org", "/etc/passwd", False),
        ("https://ex\u0430mple.org", "there.py\x00", False),
        (HOSTILE["address"], "x" * 5000, False),
        ("", "", False),
    ):
        shown = page._outcome(case | {"link": link, "reproducer": file}, tmp_path)
        assert ("link" in shown, "reproducer" in shown) == (is_shown, is_shown), (link, file)


def test_the_page_names_a_report_that_is_not_whole(tmp_path: pathlib.Path) -> None:
    put(tmp_path, "other/cpu", built("other", [record("GRAD-01", "only", Verdict.PASS)]) | {"footer": {}})

    (line,) = page.document(tmp_path)["left_out"]

    assert "is not whole" in line
    assert str(tmp_path) not in line


def test_where_revisions_differ_the_newest_words_are_shown(tmp_path: pathlib.Path) -> None:
    for place, revision in (("a/cpu", 2), ("b/cpu", 3), ("c/cpu", 1)):
        report = built("some", [record("GRAD-01", "only", Verdict.PASS)])
        report["suite"]["revision"], report["clauses"][0]["sentence"] = revision, f"As of {revision}."
        report["footer"] = model._footer(report)
        put(tmp_path, place, report)

    assert page.document(tmp_path)["clauses"]["GRAD-01"]["sentence"] == "As of 3."


def test_the_committed_page_is_what_the_committed_reports_render_to() -> None:
    folder = CHECKOUT / "reports"

    assert (folder / "index.html").read_text(encoding="utf-8") == page.html(folder), "stale: run `ckptspec render`"
    assert (folder / "README.md").read_text(encoding="utf-8") == render.matrix(folder), "stale: run `ckptspec render`"


# -- Hostile texts -----------------------------------------------------------------------------------------------------


def hostile_reports(folder: pathlib.Path, text: str) -> pathlib.Path:
    """A report in which an implementation brings this text wherever it can."""
    evidence: list[dict[str, Any]] = json.loads(json.dumps(EVIDENCE))
    evidence[0]["plain"]["forward"] = {text: 1}
    evidence[0] |= {"difference": text, "error": {"type": text, "phase": "backward"}}
    evidence[1]["program"] = text
    failure = Record(
        "GRAD-02", text, text, Verdict.FAIL,
        label=text, exception=text, signal=text, message=f"It said: {text}", evidence=evidence,
    )  # fmt: skip
    known = Known("GRAD-02", Verdict.FAIL, text, label=text, link=text)
    report = built(text, [failure], [known])
    report["adapter"] |= {"version": text, "asked": text}
    report["adapter"]["host"] |= {"name": text, "version": text}
    report["environment"] = {text: text}
    report["clauses"][0]["cases"][0]["reproducer"] = text
    report["footer"] = model._footer(report)
    put(folder, "hostile/cpu", report)
    (folder / "index.html").write_text(page.html(folder), encoding="utf-8")
    return folder


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_does_not_leave_the_document(tmp_path: pathlib.Path, reports: pathlib.Path, text: str) -> None:
    plain = Outline((reports / "index.html").read_text())

    found = (hostile_reports(tmp_path, text) / "index.html").read_text()

    outline = Outline(found)
    assert outline.elements == plain.elements
    (document,) = (text for text in outline.texts if text not in plain.texts)
    assert json.loads(document[1]) == page.document(tmp_path)
    assert document[1].isascii()


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_written_out_where_it_would_act_or_hide(tmp_path: pathlib.Path, text: str) -> None:
    def texts(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            yield from (t for item in value.items() for part in item for t in texts(part))
        elif isinstance(value, list):
            yield from (t for part in value for t in texts(part))

    for shown in texts(page.document(hostile_reports(tmp_path, text))):
        assert all(c.isprintable() or c in "\n\t" for c in shown)
        assert len(shown) < page.LIMIT + 100


def test_a_huge_text_is_cut_off(tmp_path: pathlib.Path) -> None:
    assert len(HUGE) > 9_000_000

    text = (hostile_reports(tmp_path, HUGE) / "index.html").read_text()

    assert len(text) < 1_000_000
    assert "more characters" in text


# -- In a browser ------------------------------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
DRIVER = shutil.which("chromedriver")


class Reader:
    """A browser that has a page open."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, folder: pathlib.Path, address: str = "", *, width: int = 1280, is_dark: bool = False) -> None:
        is_phone = width < 500
        size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": is_phone}
        colours = [{"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": colours})
        self.driver.get("about:blank")
        self.driver.get((folder / "index.html").as_uri() + address)

    def all(self, selector: str) -> list[Any]:
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def one(self, selector: str) -> Any:
        found = self.all(selector)
        assert len(found) == 1, f"{selector}: {len(found)}"
        return found[0]

    def text(self, selector: str = "main") -> str:
        """What is in the page there, shown or folded."""
        return str(self.one(selector).get_property("textContent"))

    def js(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    def choose(self, name: str, value: str) -> None:
        """Fill in a filter, and wait until it has acted."""
        self.js(
            "const field = document.querySelector(`[name=${arguments[0]}]`); field.value = arguments[1];"
            "field.dispatchEvent(new Event('input', { bubbles: true }))",
            name, value,
        )  # fmt: skip
        self.until(
            "new URLSearchParams(location.hash.split('?')[1] ?? '').get(arguments[0]) === arguments[1]", name, value
        )

    def until(self, condition: str, *arguments: Any) -> None:
        wait = pytest.importorskip("selenium.webdriver.support.wait")
        wait.WebDriverWait(self.driver, 5, 0.02).until(lambda _: self.js(f"return {condition}", *arguments))

    @property
    def address(self) -> str:
        return str(self.js("return location.hash"))

    @property
    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("chromium and chromedriver are not both on the PATH")
    options = selenium.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(DRIVER))
    driver.set_page_load_timeout(30)
    yield driver
    driver.quit()


@pytest.fixture
def reader(driver: Any) -> Iterator[Reader]:
    """A browser; a page in it may log nothing."""
    reader = Reader(driver)
    yield reader
    assert reader.errors == []


OF_FIRST = "#/chapter/GRAD/faulty/cpu/first"
VIEWS = [
    "#/",
    "#/?q=gradient",
    "#/chapter/GRAD",
    OF_FIRST,
    "#/clause/GRAD-02/faulty/cpu/first",
    "#/implementation/faulty/cpu",
]


def test_the_page_opens_from_a_file(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports)

    assert reader.driver.current_url.startswith("file://")
    assert reader.text("h1") == "What each implementation keeps and breaks"
    assert reader.text("[role=status]") == "21 results: 7 of 7 clauses, 3 of 3 implementations. "
    assert reader.js("return performance.getEntriesByType('resource').length") == 0


def test_without_scripts_the_page_points_to_the_matrix(reader: Reader, reports: pathlib.Path) -> None:
    reader.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        reader.open(reports)
        assert "needs JavaScript" in reader.one("main").text
        assert reader.one("noscript a").get_dom_attribute("href") == "README.md"
    finally:
        reader.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_the_matrix_is_that_of_the_readme(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports)
    rows = [line for line in render.matrix(reports).splitlines() if re.match(r"\| [A-Z]+ \|", line)]
    expected = [[cell.strip(" ✗") for cell in row.strip("|").split("|")] for row in rows]

    shown = [
        [
            row.find_element("css selector", "th a").text,
            *(c.text for c in row.find_elements("css selector", ".numbers")),
        ]
        for row in reader.all(".matrix tbody tr:not(.total)")
    ]

    assert shown == expected


def test_a_broken_chapter_has_a_sign_and_a_word(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports)

    def said(chapter: str, form: str) -> str:
        return reader.one(f".matrix a[href='#/chapter/{chapter}/faulty/cpu/{form}']").text.splitlines()[-1]

    assert said("GRAD", "first") == "✗ 1 wrong, 1 failed"
    assert said("STOP", "first") == "✗ 1 crashed"
    assert said("STOP", "second") == "✗ 1 timed out"
    assert said("GRAD", "second") == "○ 1 declined"
    assert said("API", "first") == "✓ all passed"
    assert said("API", "second") == "– not applicable"
    assert said("MEM", "first") == "! 1 error"


def listed(reader: Reader) -> set[str]:
    return {item.text for item in reader.all(".clauses b a")}


@pytest.mark.parametrize(
    ("name", "value", "clauses", "results"),
    [
        ("level", "MUST", set(CLAUSES) - {"API-04"}, None),
        ("level", "SHOULD", {"API-04"}, None),
        ("profile", "core", {c.id for c in CLAUSES.values() if c.profile == "core"}, None),
        ("profile", "none", {c.id for c in CLAUSES.values() if c.profile is None}, None),
        ("verdict", "WRONG", {"GRAD-02"}, 1),
        ("verdict", "broken", {"GRAD-02", "GRAD-13", "STOP-10"}, 4),
        ("verdict", "declined", {"GRAD-13", "STOP-01"}, 2),
        ("in", "good", set(CLAUSES), 7),
        ("in", "faulty", set(CLAUSES), 14),
        ("in", "faulty/cpu/second", set(CLAUSES), 7),
        ("q", "grad-13", {"GRAD-13"}, 3),
        ("q", CLAUSES["STOP-10"].sentence, {"STOP-10"}, 3),
        ("q", "TOO OFTEN", {"GRAD-13"}, 1),
        ("q", "numbers off", {"GRAD-02"}, 1),
        ("q", "no such option", {"GRAD-13"}, 1),
        ("q", "nothing like this", set(), 0),
    ],
)
def test_a_filter_leaves_what_matches(
    reader: Reader, reports: pathlib.Path, name: str, value: str, clauses: set[str], results: int | None
) -> None:
    reader.open(reports)

    reader.choose(name, value)

    assert listed(reader) == clauses
    total = 3 * len(clauses) if results is None else results
    count, _, rest = reader.text("[role=status]").partition(": ")
    assert count == f"{total} result{'s' * (total != 1)}"
    assert rest.startswith(f"{len(clauses)} of {len(CLAUSES)} clauses")
    assert len(reader.all(".matrix tbody tr:not(.total)")) == len({id.split("-")[0] for id in clauses})


def test_filters_act_together_and_can_be_cleared(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports)
    reader.choose("verdict", "broken")
    reader.choose("in", "faulty/cpu/first")
    reader.choose("q", "grad")
    assert reader.address == "#/?q=grad&verdict=broken&in=faulty%2Fcpu%2Ffirst"
    assert listed(reader) == {"GRAD-02", "GRAD-13"}

    reader.one("[role=status] a").click()

    reader.until("location.hash === '#/'")
    assert len(reader.all(".matrix tbody tr:not(.total)")) == 4
    assert reader.one("[name=q]").get_property("value") == ""


def test_filters_are_part_of_the_address(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports, "#/?q=grad&level=MUST&profile=core&verdict=WRONG&in=faulty")

    values = reader.js("return [...document.querySelectorAll('form [name]')].map((field) => field.value)")

    assert values == ["grad", "MUST", "core", "WRONG", "faulty"]
    assert listed(reader) == {"GRAD-02"}


def test_a_cell_leads_to_text_evidence_message_witness_and_reproducer(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports)

    reader.one(f".matrix a[href='{OF_FIRST}']").click()

    reader.until("location.hash === arguments[0]", OF_FIRST)
    case = next(d for d in reader.all("details[open]") if "GRAD-02" in d.text)
    clause = CLAUSES["GRAD-02"]
    witness = witnessed.names()["GRAD-02"][0]
    for said in (
        clause.sentence, "✗ wrong", "known failure", "gradient", "in backward", "the numbers are off", witness,
        "2 replays in backward", "executions of head", "4,096", "gradient[0]: 1.5 plain, 2.5 checkpointed",
        "70 programs tried, 3 discarded", "return sin(v0)", "it always did",
    ):  # fmt: skip
        assert said in case.text, said
    links = [a.get_dom_attribute("href") for a in case.find_elements("css selector", ".case a")]
    assert links == ["https://example.org/1", "faulty/cpu/reproducers/one.py"]
    assert {d.get_property("open") for d in reader.all("details")} == {True, False}  # what is good stays folded


def test_a_view_of_an_implementation_says_what_it_is_and_what_it_breaks(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports, "#/implementation/faulty/cpu")

    text = reader.text()

    for said in ("1.2", "host 2", "python 3", "some.py:adapter", "0" * 64, "revision", "2026-01-02", "not as expected"):
        assert said in text, said
    assert [d.find_element("css selector", "b").text for d in reader.all("details")] == [
        "GRAD-02", "GRAD-13", "STOP-10", "MEM-01", "STOP-10"
    ]  # fmt: skip
    declared = reader.one("[aria-label='By capability']").text
    assert "KEYWORDS\nkeyword arguments for the region\n✓ declared ✓ declared" in declared


def test_every_link_leads_somewhere(reader: Reader, reports: pathlib.Path) -> None:
    """Followed from the overview until there is nothing new; files are looked for on disk."""
    reader.open(reports)
    addresses = reader.js("""
        const seen = new Set(["#/", "#/?q=grad"]), files = new Set(), lost = [];
        for (const address of seen) {
            history.replaceState(null, "", address);
            show();
            if (document.querySelector("h1").textContent === "Not here") lost.push(address);
            for (const link of document.querySelectorAll("body a")) {
                const href = link.getAttribute("href");
                (href.startsWith("#/") ? seen : files).add(href);
            }
        }
        return [[...seen], [...files], lost];
    """)
    seen, files, lost = addresses

    assert lost == []
    assert set(VIEWS[2:]) <= set(seen)
    assert len(seen) > 50
    local = {f for f in files if not f.startswith(("https://", "#content"))}
    assert local == {"README.md", "faulty/cpu/report.json", "faulty/cpu/reproducers/one.py", "good/cpu/report.json"}
    assert all((reports / file).is_file() for file in local)


@pytest.mark.parametrize(
    "address",
    [
        "#/clause/GRAD-99", "#/clause/constructor", "#/chapter/NONE", "#/chapter/GRAD/some/where/else", "#/other",
        "#/implementation/__proto__/x", "#/chapter/%E0%A4%A", "#/toString", "#/clause/<script>", "#somewhere?%",
    ],
)  # fmt: skip
def test_an_address_of_nothing_says_so(reader: Reader, reports: pathlib.Path, address: str) -> None:
    reader.open(reports, address)

    assert reader.text("h1") == "Not here"
    assert reader.one("main a").get_dom_attribute("href") == "#/"


def test_back_leads_to_where_the_reader_was(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports, "#/?verdict=broken")
    cell = reader.one(f".matrix a[href='{OF_FIRST}?verdict=broken']")
    reader.js("arguments[0].scrollIntoView()", cell)
    before = reader.js("return scrollY")
    cell.click()
    reader.until("document.querySelector('h1').textContent.startsWith('GRAD')")
    assert (reader.js("return scrollY"), reader.js("return document.activeElement.tagName")) == (0, "H1")
    assert "Shown are the 2 of 3 clauses that match the filters." in reader.text()

    reader.driver.back()

    reader.until("location.hash === '#/?verdict=broken'")
    assert reader.js("return document.activeElement.getAttribute('href')") == f"{OF_FIRST}?verdict=broken"
    assert before > 0
    assert reader.js("return scrollY") == pytest.approx(before, abs=2)
    reader.driver.forward()
    reader.until("document.querySelector('h1').textContent.startsWith('GRAD')")


def test_a_cell_is_reached_and_opened_by_keyboard(reader: Reader, reports: pathlib.Path) -> None:
    tab, enter = "\ue004", "\ue007"
    reader.open(reports)
    reader.press(tab)
    assert reader.js("return document.activeElement.className") == "skip"
    assert reader.js("return document.activeElement.getBoundingClientRect().left >= 0")
    reader.press(enter)
    assert reader.js("return document.activeElement.id") == "content"

    for _ in range(100):
        reader.press(tab)
        focused = reader.driver.switch_to.active_element
        if focused.get_dom_attribute("href") == OF_FIRST:
            break
        assert reader.js("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    outline = reader.js("return getComputedStyle(document.activeElement).outlineWidth")
    reader.press(enter)

    assert outline == "3px"
    reader.until("location.hash === arguments[0]", OF_FIRST)
    assert reader.js("return document.activeElement.tagName") == "H1"


def test_a_folded_case_is_opened_by_keyboard(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports, "#/chapter/API/good/cpu/only")
    (folded,) = reader.all("details")
    assert not folded.get_property("open")

    reader.js("arguments[0].querySelector('summary').focus()", folded)
    reader.press("\ue007")

    assert folded.get_property("open")


def test_tables_say_what_their_heads_are_of(reader: Reader, reports: pathlib.Path) -> None:
    for view in VIEWS:
        reader.open(reports, view)
        heads = reader.all("main th")
        assert {th.get_dom_attribute("scope") for th in heads} <= {"row", "col", "colgroup"}
    reader.open(reports)
    assert (
        reader.one(".matrix a[href='#/chapter/API/good/cpu/only']")
        .get_property("textContent")
        .startswith("API, good only, cpu: 1 / 1 / 1")
    )
    assert reader.one("[role=status]").get_property("ariaLive") in (None, "", "polite")
    assert reader.js("return [...document.querySelectorAll('form [name]')].every((field) => field.labels.length)")


WIDTH = "return document.scrollingElement.scrollWidth"


@pytest.mark.parametrize("view", VIEWS)
def test_a_phone_scrolls_down_only(reader: Reader, reports: pathlib.Path, view: str) -> None:
    reader.open(reports, view, width=390)
    assert reader.js(WIDTH) == 390
    reader.js("openAll()")
    assert reader.js(WIDTH) == 390


def test_a_wide_matrix_scrolls_in_its_box_with_the_chapters_in_view(reader: Reader, tmp_path: pathlib.Path) -> None:
    for number in range(9):
        put(tmp_path, f"some{number}/cpu", built(f"some{number}", [record(c, "only", Verdict.PASS) for c in CLAUSES]))
    render.draw(tmp_path)
    reader.open(tmp_path, width=390)

    left = reader.js("""
        const box = document.querySelector(".wide .box");
        box.scrollIntoView();
        box.scrollTo(500, 0);
        return [box.scrollLeft, document.querySelector(".matrix tbody th").getBoundingClientRect().left];
    """)

    assert left[0] > 100
    assert 0 < left[1] < 30
    assert reader.js(WIDTH) == 390


# How each text stands out from what is behind it, as WCAG defines it.
CONTRAST = """
    const channels = (text) => text.match(/[\\d.]+/g).map(Number);
    const linear = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
    const behind = (element) => {
        for (; element; element = element.parentElement) {
            const ground = channels(getComputedStyle(element).backgroundColor);
            if (ground[3] !== 0) return ground;
        }
    };
    openAll();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = {};
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
        const [a, b] = [channels(getComputedStyle(element).color), behind(element)].map(luminance);
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found[`${element.tagName}.${element.className}`] = ratio;
    }
    return found;
"""


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_texts_stand_out(reader: Reader, reports: pathlib.Path, view: str, is_dark: bool) -> None:
    reader.open(reports, view, is_dark=is_dark)

    ground = reader.js("return getComputedStyle(document.body).backgroundColor")
    assert (int(re.findall(r"\d+", ground)[0]) < 100) is is_dark
    assert reader.js(CONTRAST) == {}


def test_on_paper_everything_is_open_and_nothing_asks_to_be_pressed(reader: Reader, reports: pathlib.Path) -> None:
    reader.open(reports, "#/chapter/GRAD/faulty/cpu/second")
    assert not all(d.get_property("open") for d in reader.all("details"))

    printed = reader.driver.execute_cdp_cmd("Page.printToPDF", {})["data"]
    reader.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})

    assert base64.b64decode(printed).startswith(b"%PDF")
    assert all(d.get_property("open") for d in reader.all("details"))
    assert not any(e.is_displayed() for e in reader.all("button, nav, form, .skip"))


HACKED = (
    "return [window.hacked ?? null, document.scripts.length, document.querySelectorAll('main img, main script').length]"
)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_text_is_shown_and_executes_nothing(reader: Reader, tmp_path: pathlib.Path, text: str) -> None:
    hostile_reports(tmp_path, text)
    (place,) = page.document(tmp_path)["reports"]
    (variant,) = page.document(tmp_path)["results"][place]
    views = reader_views(variant)
    for view in views:
        reader.open(tmp_path, view, width=390)
        reader.js("openAll(); for (const e of document.querySelectorAll('*')) e.dispatchEvent(new Event('mouseover'))")
        assert reader.js(HACKED) == [None, 2, 0]
        assert reader.text("h1") != "Not here"
        assert reader.js(WIDTH) == 390
        hrefs = reader.js("return [...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
        assert all(re.match(r"#|https://github\.com/|README\.md$|hostile/cpu/report\.json$", h) for h in hrefs), hrefs
    reader.open(tmp_path, views[-1])
    assert f"It said: {page.printable(text, page.LIMIT - 9)[:1000]}" in reader.text()


def reader_views(variant: str) -> list[str]:
    quoted = "".join(f"%{byte:02X}" for byte in variant.encode())
    return [
        "#/",
        "#/chapter/GRAD",
        "#/implementation/hostile/cpu",
        "#/clause/GRAD-02",
        f"#/chapter/GRAD/hostile/cpu/{quoted}",
    ]


def test_the_committed_page_works(reader: Reader) -> None:
    folder = CHECKOUT / "reports"
    found, _ = model.load_all(folder)
    columns = sum(len(report["adapter"]["variants"]) for report in found.values())

    reader.open(folder)

    assert len(reader.all(".matrix thead tr + tr th")) == columns > 0
    for place in found:
        reader.js("location.hash = arguments[0]", f"#/implementation/{place}")
        reader.until(
            "document.querySelector('h1').textContent !== arguments[0]", "What each implementation keeps and breaks"
        )
        files = [
            a.get_dom_attribute("href") for a in reader.all("main a") if a.get_dom_attribute("href")[0] not in "#h"
        ]
        assert files
        assert all((folder / file).is_file() for file in files)
