"""From a failed case to a script: the clause's own source, for this case and this fault, in the library's words."""

from __future__ import annotations

import ast
import functools
import itertools
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable

from ckptspec.conformance.backend import Fact, Words
from ckptspec.conformance.clause import Clause
from ckptspec.conformance.reproducer import program
from ckptspec.conformance.reproducer.fault import Fault, docstring, ending
from ckptspec.conformance.reproducer.folding import folded, literal
from ckptspec.conformance.reproducer.source import free, tidy
from ckptspec.conformance.reproducer.spelling import Unspeakable, spelled
from ckptspec.conformance.reproducer.trimming import trimmed
from ckptspec.conformance.reproducer.vocabulary import Definition, Vocabulary, mentions, read, taken
from ckptspec.conformance.reproducer.wrapping import wrapped
from ckptspec.conformance.verdict import Verdict

STAGE = pathlib.Path(__file__).parent / "stage"


def reproducer(clause: Clause, fault: Fault, words: Words, library: str) -> str:
    """The script. library: its name and version. Raises Unspeakable if the clause says what there are no words for."""
    if Fact.PROCESSES in clause.needs and not fault.record.label:
        raise Unspeakable("one of several processes tells the others of no other end than a failed assertion")
    parameters = program.parameters(clause, fault.record.parameters)
    text = trimmed(folded(program.text_of(clause, fault.record), parameters), fault.aim)
    tree = ast.parse(text)
    if "drawn" in free(tree):
        raise Unspeakable("how often a drawn program may be executed is not known")
    stage = "bounds" if fault.record.verdict is Verdict.FAIL or program.uses_results(tree) else "values"
    texts = _texts(stage, words)
    known = _known(tuple(texts), tuple(words.names.items()), frozenset(m for m in mentions(tree) if m.endswith("=")))
    probe, options = program.probe(tree, fault), program.options(tree, known)
    keywords = {"plain", "backward", "tolerance" if stage == "values" else "replays" if fault.is_unreplayed else ""}
    main = tidy(re.sub("  # noqa.*", "", spelled(text, known, probe, keywords)))
    end, named = ending(ast.parse(main), fault)
    named["OPTIONS"] = "{" + ", ".join(map(literal, options)) + "}"
    texts.insert(-1, _plainly(options))
    is_observing = program.uses_results(tree) or probe != "identity" or {".attempt", ".gradients"} & mentions(tree)
    met = {
        "replays": fault.is_unreplayed,
        "now": bool(is_observing or fault.record.exception),
        "OPTIONS": bool(options),
        "seed": any(re.search(r"^(seed =|def seed)", text, re.M) for text in texts),
    }
    conditions = mentions(ast.parse(main)) | program.always_given(ast.parse(main)) | {name for name in met if met[name]}
    vocabulary = read(texts, {**words.names, **named}, conditions)
    return _assembled(docstring(clause, fault, library), main, end, vocabulary)


def _texts(stage: str, words: Words) -> list[str]:
    """What scripts are made of: the suite's files and the adapter's."""
    files = [STAGE / f"{name}.py" for name in (stage, "handles", "endings")]
    imports = "".join(f"import {name}\n" for name in words.imports)
    return [f.read_text() for f in (*files, *map(pathlib.Path, words.files))] + [imports]


@functools.cache
def _known(texts: tuple[str, ...], names: tuple[tuple[str, str], ...], keywords: frozenset[str]) -> Vocabulary:
    """What programs say, before it is known what a script needs but for the keywords."""
    return read(texts, dict(names), keywords)


def _plainly(options: list[str]) -> str:
    """A plain call, which takes no notice of options."""
    given = "".join(f"{name}=None, " for name in options)
    if len(given) < 50:
        return f"plainly = lambda function, *args, {given}**kwargs: function(*args, **kwargs)\n"
    return f"def plainly(function, *args, {given}**kwargs):\n    return function(*args, **kwargs)\n"


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
