"""What scripts are made of: definitions, and how a program says what a clause says.

Both stand in ordinary Python files, the suite's in `stage/`, the library's where its adapter says. They are read as
text, never imported. Classes with these names are no definitions but dictionaries, from what stands in a clause to what
stands in a program:

    under_test    what a clause takes from `under_test`
    ops           operations; `anything_else` is the module for those that are not named
    handles       what a clause does with its `checkpoint` besides calling it: functions that take it first
    using         options of regions: the keyword of the library, and what makes its value of the given one
    array         how arrays are made, of VALUES and of SIZE evenly spaced ones, each of DTYPE

A line that ends in `# if a b` is taken only where a program mentions `a` or `b`, one that ends in `# unless a b` only
where it mentions neither.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ckptspec.conformance.reproducer.folding import folded
from ckptspec.conformance.reproducer.source import Source, attributes, free, names

DICTIONARIES = ("under_test", "ops", "handles", "using", "array")
CONDITION = re.compile(r"(.*?)  # (if|unless) ([\w.= ]+)$")


@dataclass(frozen=True)
class Definition:
    """A function, a class, an import or an assignment.

    mentions: other names that it needs. afterwards: statements that are about it.
    """

    name: str
    text: str
    mentions: frozenset[str]
    is_import: bool = False
    afterwards: tuple[str, ...] = ()


@dataclass
class Vocabulary:
    definitions: dict[str, Definition] = field(default_factory=dict)
    dictionaries: dict[str, dict[str, str]] = field(default_factory=lambda: {name: {} for name in DICTIONARIES})

    def option(self, name: str) -> tuple[str, str]:
        """The keyword by which the library takes an option, and what makes its value ('': it is taken as it is)."""
        if name not in self.dictionaries["using"]:
            return name, ""
        keyword, make = ast.parse(self.dictionaries["using"][name], mode="eval").body.elts  # type: ignore[attr-defined]
        return keyword.value, ast.unparse(make)

    def needed(self, mentioned: Iterable[str]) -> list[Definition]:
        """The definitions of what is mentioned, and of what they mention, in their order."""
        found, new = set[str](), set(mentioned) & set(self.definitions)
        while new:
            found |= new
            new = set().union(*(self.definitions[n].mentions for n in new)) & set(self.definitions) - found
        return [d for name, d in self.definitions.items() if name in found]


def taken(tree: ast.AST) -> set[str]:
    """The names that a piece takes from around it, those in modules included."""
    return free(tree) | {ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}


def mentions(tree: ast.AST) -> set[str]:
    """What a condition may ask for: names, `.attributes`, `keywords=`, `'texts'`."""
    keywords = {f"{n.arg}=" for n in ast.walk(tree) if isinstance(n, ast.keyword) and n.arg}
    texts = {f"'{n.value}'" for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return names(tree) | {f".{name}" for name in attributes(tree)} | keywords | texts


def read(texts: Iterable[str], named: Mapping[str, str], mentioned: Collection[str]) -> Vocabulary:
    """The vocabulary of several files, of which a later one has the last word.

    named: names -> what stands for them. mentioned: what the program and its definitions mention, for conditions.
    """
    found, texts = Vocabulary(), [_conditioned(text, mentioned) for text in texts]
    synonyms = {name: substituted(path, named) for text in texts for name, path in _synonyms(text)}
    named = {**synonyms, **named}
    for text in texts:
        source = Source(substituted(text, named))
        for statement in source.tree.body:
            _enter(found, source, statement, mentioned)
    return found


def _conditioned(text: str, mentioned: Collection[str]) -> str:
    """The text without the lines, and what belongs to them, whose condition does not hold."""
    lines, left_out = [], ""
    for line in text.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if left_out and (not line or line.startswith(left_out)):
            continue
        left_out = ""
        if condition := CONDITION.match(line):
            line, word, asked = condition.groups()
            if bool(set(asked.split()) & set(mentioned)) is not (word == "if"):
                left_out = indent + " " if line.endswith(":") else ""
                continue
        lines.append(line)
    return "\n".join(lines) + "\n"


def _synonyms(text: str) -> Iterator[tuple[str, str]]:
    """Names that are given to what a module has, and what that is."""
    for statement in ast.parse(text).body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value):
                yield name, ast.unparse(value)


def substituted(text: str, named: Mapping[str, str]) -> str:
    """The text with other names; `**NAME` in a call gives way to arguments, or to nothing."""
    source = Source(text)
    for node in ast.walk(source.tree):
        match node:
            case ast.Name(id=name, ctx=ast.Load()) if name in named:
                source.replace(source.span(node), named[name])
            case ast.Import() | ast.ImportFrom():
                source.replace(source.span(node), _import(node, named))
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg is None and isinstance(keyword.value, ast.Name) and keyword.value.id in named:
                source.exchange(node, keyword, named[keyword.value.id])
    for statement in source.tree.body:
        if isinstance(statement, ast.Assign) and names(statement.targets[0]) & set(named):
            source.delete(statement)
    return source.result()


def _import(node: ast.Import | ast.ImportFrom, named: Mapping[str, str]) -> str:
    def renamed(module: str) -> str:
        root, dot, rest = module.partition(".")
        return named.get(root, root) + dot + rest

    if isinstance(node, ast.Import):
        return "import " + ", ".join(renamed(a.name) + (f" as {a.asname}" if a.asname else "") for a in node.names)
    imported = ", ".join(a.name + (f" as {a.asname}" if a.asname else "") for a in node.names)
    return f"from {renamed(node.module or '')} import {imported}"


def _enter(found: Vocabulary, source: Source, statement: ast.stmt, mentioned: Collection[str]) -> None:
    match statement:
        case ast.ClassDef(name=name) if name in DICTIONARIES:
            for entry in statement.body:
                if isinstance(entry, ast.Assign) and isinstance(entry.targets[0], ast.Name):
                    found.dictionaries[name][entry.targets[0].id] = source.of(entry.value)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            text = source.rendered(source.lines(statement))
            _define(found, name, _with_what_is_given(text, mentioned))
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            if isinstance(value, ast.Dict):
                _spare_entries(source, value, mentioned)
            _define(found, name, source.of(statement))
        case ast.Import() | ast.ImportFrom():
            for alias in statement.names:
                name = alias.asname or alias.name
                origin = f"from {statement.module} " if isinstance(statement, ast.ImportFrom) else ""
                text = f"{origin}import {alias.name}" + (f" as {alias.asname}" if alias.asname else "")
                found.definitions[name] = Definition(name, text, frozenset(), is_import=True)
        case ast.Expr(value=ast.Call()) | ast.Assign():
            _append(found, statement, source.of(statement))


def _append(found: Vocabulary, statement: ast.stmt, text: str) -> None:
    """Add a statement to what it is about: the last definition that it mentions, or a module."""
    about = [d for name, d in found.definitions.items() if name in free(statement)]
    owner = next((d for d in reversed(about) if not d.is_import), about[-1])
    others = frozenset(taken(statement)) - {owner.name}
    found.definitions[owner.name] = replace(
        owner, mentions=owner.mentions | others, afterwards=(*owner.afterwards, text)
    )


def _define(found: Vocabulary, name: str, text: str) -> None:
    tree = ast.parse(text)
    found.definitions[name] = Definition(name, re.sub(r"\n{2,}", "\n", text).strip(), frozenset(taken(tree)))


def _spare_entries(source: Source, table: ast.Dict, mentioned: Collection[str]) -> None:
    """Leave out the entries for texts that are not there."""
    pairs = [
        (source.of(k), source.of(v))
        for k, v in zip(table.keys, table.values, strict=True)
        if k is not None and (not isinstance(k, ast.Constant) or f"'{k.value!s}'" in mentioned)
    ]
    source.replace(source.span(table), "{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}")


def _with_what_is_given(text: str, given: Collection[str]) -> str:
    """A function without the parameters of default None that nobody gives it."""
    source = Source(text)
    (function,) = source.tree.body
    if not isinstance(function, ast.FunctionDef) or not function.args.kwonlyargs:
        return text
    arguments = function.args
    absent = {a.arg: None for a in arguments.kwonlyargs if f"{a.arg}=" not in given}
    kept = [source.of(a) for a in arguments.args] + [f"*{a.arg}" for a in [arguments.vararg] if a]
    always = {a.arg for a in arguments.kwonlyargs if f"{a.arg}==" in given}
    kept += [a.arg if a.arg in always else f"{a.arg}=None" for a in arguments.kwonlyargs if a.arg not in absent]
    kept.insert(len(arguments.args), "*") if always and not arguments.vararg else None
    kept += [f"**{a.arg}" for a in [arguments.kwarg] if a]
    header = source.span(function)[0], source.lines(function.body[0])[0]
    source.replace(header, f"def {function.name}({', '.join(kept)}):\n")
    return folded(source.result(), absent, always)
