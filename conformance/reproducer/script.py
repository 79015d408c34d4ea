"""From a failed case to a script: the clause's own source, for this case and this fault, in the library's words."""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import pathlib
import re
import signal
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ckptspec.conformance.backend import Fact, Words
from ckptspec.conformance.case import Record
from ckptspec.conformance.clause import Clause
from ckptspec.conformance.printable import line
from ckptspec.conformance.reproducer.exploring import is_exploring, settled
from ckptspec.conformance.reproducer.folding import folded, literal
from ckptspec.conformance.reproducer.source import Source, free, tidy
from ckptspec.conformance.reproducer.spelling import Unspeakable, spelled
from ckptspec.conformance.reproducer.trimming import RUNS, Aim, is_use, label, runs, trimmed
from ckptspec.conformance.reproducer.vocabulary import Definition, Vocabulary, mentions, read, taken
from ckptspec.conformance.reproducer.wrapping import LIMIT, wrapped
from ckptspec.conformance.under_test import NoReplay
from ckptspec.conformance.verdict import Verdict

STAGE = pathlib.Path(__file__).parent / "stage"
#: What regions may be given, by the suite's names.
OPTIONS = frozenset({
    "early_stop", "determinism_check", "preserve_rng_state", "save", "save_names", "policy", "context_fn", "debug",
    "respect_saved_tensors_hooks",
})  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What a script shows: how a case failed. limit: seconds after which a case that does not end is ended."""

    record: Record
    limit: float = 60.0

    @property
    def is_unreplayed(self) -> bool:
        return self.record.label == NoReplay.label

    @property
    def is_bound(self) -> bool:
        """Whether an assertion of the clause's own failed."""
        return self.record.verdict is Verdict.FAIL and bool(self.record.label) and not self.is_unreplayed

    @property
    def aim(self) -> Aim:
        return Aim(self.record.label if self.is_bound else "", len(self.record.evidence))

    @property
    def label(self) -> str:
        """What the script knows the fault by, as Python: how a message begins, an exit code, or seconds."""
        record = self.record
        match record.verdict:
            case Verdict.CRASH:
                name = record.signal
                return str(-signal.Signals[name] if name in signal.Signals.__members__ else int(name.split()[-1]))
            case Verdict.TIMEOUT:
                return f"{self.limit:g}"
            case Verdict.WRONG:
                return literal(f"{record.label}:")
        return literal((f"{record.exception} in {record.phase}:" if record.exception else record.label)[:80])

    @property
    def title(self) -> str:
        record = self.record
        match record.verdict:
            case Verdict.CRASH:
                return f"the process ends with {record.signal}"
            case Verdict.TIMEOUT:
                return f"no end after {self.limit:g} seconds"
            case Verdict.WRONG:
                return f"a wrong {record.label}"
        return f"{record.exception} in {record.phase}" if record.exception else record.label


def reproducer(clause: Clause, fault: Fault, words: Words, library: str) -> str:
    """The script. library: its name and version. Raises Unspeakable if the clause says what there are no words for."""
    if Fact.PROCESSES in clause.needs:
        raise Unspeakable("it takes several processes")
    text = trimmed(folded(_program(clause, fault), _parameters(clause, fault.record.parameters)), fault.aim)
    tree = ast.parse(text)
    if "drawn" in free(tree):
        raise Unspeakable("how often a drawn program may be executed is not known")
    stage = "bounds" if fault.record.verdict is Verdict.FAIL or _uses_results(tree) else "values"
    texts = _texts(stage, words)
    known = _known(tuple(texts), tuple(words.names.items()))
    probe, options = _probe(tree, fault), _options(tree, known)
    keywords = {"plain", "backward", "tolerance" if stage == "values" else "replays" if fault.is_unreplayed else ""}
    main = tidy(re.sub("  # noqa.*", "", spelled(text, known, probe, keywords)))
    ending, named = _ending(ast.parse(main), fault)
    named["OPTIONS"] = "{" + ", ".join(map(literal, options)) + "}"
    texts.insert(-1, _plainly(options))
    conditions = mentions(ast.parse(main)) | _always_given(ast.parse(main))
    conditions |= {
        name
        for name, is_met in {
            "replays": fault.is_unreplayed,
            "now": bool(fault.record.exception or _uses_results(tree) or ".attempt" in mentions(tree))
            or probe != "identity",
            "OPTIONS": bool(options),
            "seed": any(re.search(r"^(seed =|def seed)", text, re.M) for text in texts),
        }.items()
        if is_met
    }
    vocabulary = read(texts, {**words.names, **named}, conditions)
    return _assembled(_docstring(clause, fault, library), main, ending, vocabulary)


def _texts(stage: str, words: Words) -> list[str]:
    """What scripts are made of: the suite's files and the adapter's."""
    files = [STAGE / f"{name}.py" for name in (stage, "handles", "endings")]
    imports = "".join(f"import {name}\n" for name in words.imports)
    return [f.read_text() for f in (*files, *map(pathlib.Path, words.files))] + [imports]


@functools.cache
def _known(texts: tuple[str, ...], names: tuple[tuple[str, str], ...]) -> Vocabulary:
    """What programs say, before it is known what a script needs."""
    return read(texts, dict(names), ())


def _plainly(options: list[str]) -> str:
    """A plain call, which takes no notice of options."""
    given = "".join(f"{name}=None, " for name in options)
    if len(given) < 50:
        return f"plainly = lambda function, *args, {given}**kwargs: function(*args, **kwargs)\n"
    return f"def plainly(function, *args, {given}**kwargs):\n    return function(*args, **kwargs)\n"


# -- the clause


def _program(clause: Clause, fault: Fault) -> str:
    """The clause's function as `main`, without decorators and docstring."""
    source = Source(textwrap.dedent(inspect.getsource(clause.function)))
    (function,) = source.tree.body
    assert isinstance(function, ast.FunctionDef)
    _, start = source.lines(function.body[0])
    text = "def main():\n" + source.rendered((start, len(source.text.encode()))).lstrip("\n")
    if not is_exploring(text):
        return text
    if not fault.record.evidence or not fault.record.evidence[-1].get("program"):
        raise Unspeakable("the program is not known")
    return settled(text, fault.record.evidence[-1])


def _parameters(clause: Clause, given: str) -> dict[str, Any]:
    """The values of a case's parameters, which a record has as one text."""
    for values in itertools.product(*clause.each.values()):
        if "-".join(map(str, values)) == given:
            return dict(zip(clause.each, values, strict=True))
    raise Unspeakable(f"{clause.id} has no case {given!r}")


def _results(tree: ast.AST) -> set[str]:
    """The names of what runs have returned."""
    calls = {id(call) for call in runs(tree)}
    assigned = [n for n in ast.walk(tree) if isinstance(n, ast.Assign)]
    results = [a for a in assigned if any(id(part) in calls for part in ast.walk(a.value))]
    return {n.id for a in results for t in a.targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _uses_results(tree: ast.AST) -> bool:
    results = _results(tree)
    return any(isinstance(n, ast.Name) and n.id in results and isinstance(n.ctx, ast.Load) for n in ast.walk(tree))


def _probe(tree: ast.AST, fault: Fault) -> str:
    """What a probe is: something that counts only where counts matter, an operator only where it must be one."""
    results = _results(tree)
    is_counting = fault.is_unreplayed or ".executions" in mentions(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr="forward" | "backward", value=ast.Name(id=name)):
                is_counting |= name in results
            case ast.Attribute(attr="forward" | "backward", value=ast.Attribute(attr="plain", value=ast.Name(id=name))):
                is_counting |= name in results
    if "'probe'" in mentions(tree) or any(is_use(n, "compiled") for n in ast.walk(tree)):
        return "ProbeOperator"  # policies see it, and compilers leave it as it is
    return "Probe" if is_counting else "identity"


def _options(tree: ast.AST, words: Vocabulary) -> list[str]:
    """The options that regions are given, by the library's names."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    given = {k.arg for n in calls if getattr(n.func, "attr", "") == "using" for k in n.keywords}
    if None in given:  # a dictionary of them
        given |= {name for name in OPTIONS if f"'{name}'" in mentions(tree)}
    return sorted({words.option(name)[0] for name in given if name})


def _always_given(tree: ast.AST) -> set[str]:
    """The keywords that every run is given, with a "==" behind them."""
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") in RUNS]
    given = [{f"{k.arg}==" for k in call.keywords} for call in calls]
    return set.intersection(*given) if given else set()


# -- the fault


def _ending(main: ast.AST, fault: Fault) -> tuple[str, dict[str, str]]:
    """Which function of the stage ends the script, and what it is told."""
    record = fault.record
    expected, kind = "the value and the gradients of the plain call", "assertion"
    told = {"LABEL": fault.label}
    if record.verdict is Verdict.CRASH:
        expected, kind = "exit code 0", "death"
    elif record.verdict is Verdict.TIMEOUT:
        expected, kind = "an end", "hang"
    elif record.exception:
        expected, kind = "no exception", "exception"
    elif fault.is_unreplayed:
        expected = "an execution in backward"
    else:
        found = [n for n in ast.walk(main) if isinstance(n, ast.Assert) and label(n) == record.label]
        expected = " ".join(ast.unparse(found[-1].test).split()) if found else expected
    control = NoReplay.label if fault.is_unreplayed else record.control
    shown = {NoReplay.label, *map(label, ast.walk(main))}
    if "plain=" in mentions(main):  # a program whose plain run tells another story
        shown |= {"value", "gradient"}
    if control and control in shown and kind == "assertion":
        kind, told["CONTROL"] = "bound", literal(control[:80])
    return kind, told | {"EXPECTED": literal(f"expected: {expected}\nobserved:")}


def _docstring(clause: Clause, fault: Fault, library: str) -> str:
    record = fault.record
    where = ", ".join(filter(None, (f"{clause.id} on {library}", record.variant, record.parameters)))
    said = record.message.split("\n +")[0].removeprefix(record.label).strip()
    paragraphs = [
        *textwrap.wrap(line(f"{where}: {fault.title}."), LIMIT - 3),
        "",
        *textwrap.wrap(f"Specified: {clause.sentence}", LIMIT),
        *textwrap.wrap(f"Observed: {line(said, 200) or 'no message'}", LIMIT),
        "Exit code: 1 if the fault is there, 0 if not, 2 for other trouble. With --plain nothing is checkpointed.",
    ]
    text = "\n".join(paragraphs).replace("\\", "\\\\").replace('"""', "'''")
    return f'"""{text}\n"""'


# -- the script


def _assembled(docstring: str, main: str, ending: str, vocabulary: Vocabulary) -> str:
    last = textwrap.dedent(vocabulary.definitions[ending].text.partition("\n")[2]).strip("\n")
    needed = vocabulary.needed(taken(ast.parse(main)) | taken(ast.parse(last)) | {"sys"})
    imports, others = [d for d in needed if d.is_import], [d for d in needed if not d.is_import]
    standard, installed = _imports(imports)
    texts = ["\n".join([d.text, *d.afterwards]) for d in others]
    parts = [
        docstring,
        *standard,
        "sys.excepthook = lambda *error: (sys.__excepthook__(*error), sys.exit(2))  # 1 is for the fault",
        *installed,
        *(text for d in imports for text in d.afterwards),
        *("", main.strip("\n"), ""),
        *(f"{text}\n" for text in texts if "\n" in text),
        *(text for text in texts if "\n" not in text),
        last,
    ]
    script = wrapped("\n".join(parts)) + "\n"
    ast.parse(script)
    return script


def _imports(definitions: Iterable[Definition]) -> tuple[list[str], list[str]]:
    """Imports of the standard library, and the others."""
    texts = {d.text for d in definitions}
    texts -= {t for t in texts if any(u.startswith(f"{t}.") and " as " not in u for u in texts)}  # `import t.u` will do
    lines = []
    for head, group in itertools.groupby(sorted(texts), lambda text: text.rpartition(" import ")[0]):
        names = [text.rpartition(" import ")[2] for text in group]
        lines += [f"{head} import {', '.join(names)}"] if head else names
    lines.sort(key=lambda text: (text.startswith("from"), text))
    is_standard = {text: text.split()[1].partition(".")[0] in sys.stdlib_module_names for text in lines}
    return [t for t in lines if is_standard[t]], [t for t in lines if not is_standard[t]]
