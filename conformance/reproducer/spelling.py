"""A clause in the library's words: `torch.sin(x)` for `ops.sin(x)`, `checkpoint(f, x, a=1)` for `using(a=1)(f, x)`."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping

from ckptspec.conformance.reproducer.source import Source, bound, pairs
from ckptspec.conformance.reproducer.trimming import UNDER_TEST, is_use
from ckptspec.conformance.reproducer.vocabulary import Vocabulary


class Unspeakable(Exception):
    """A clause says something for which there are no words; the message says what."""


def spelled(text: str, words: Vocabulary, probe: str, run_keywords: Collection[str]) -> str:
    """The text of a function. Raises Unspeakable.

    probe: the class of probes, or "identity". run_keywords: what runs may be told; the rest is left out.
    """
    source = Source(text)
    wanted = ("ops", "torch", "api", *(["probe"] if probe == "identity" else []))
    _Spelling(source, words, dict(_aliases(source.tree, wanted)), probe, run_keywords).visit(source.tree)
    return source.result()


def _aliases(tree: ast.AST, wanted: Collection[str]) -> Iterator[tuple[str, str]]:
    """Local names of what a program calls by its own name wherever it stands -> what it is."""
    for node in ast.walk(tree):
        for target, value in pairs(node) if isinstance(node, ast.Assign) else ():
            made = value.func if isinstance(value, ast.Call) else value
            if isinstance(target, ast.Name) and isinstance(made, ast.Attribute) and is_use(made, *wanted):
                yield target.id, made.attr


class _Spelling(ast.NodeVisitor):
    """Visits a node's parts first, so that what replaces it is made of what they have become."""

    def __init__(
        self,
        source: Source,
        words: Vocabulary,
        aliases: Mapping[str, str],
        probe: str,
        run_keywords: Collection[str],
    ) -> None:
        self.source, self.words, self.aliases = source, words, aliases
        self.probe, self.run_keywords = probe, run_keywords
        self.bound = set(bound(source.tree)) - set(aliases)

    def say(self, node: ast.AST, text: str) -> None:
        self.source.replace(self.source.span(node), text)

    def word(self, kind: str, name: str) -> str:
        """How a program says a name of that kind: "under_test", "ops" or "handles"."""
        known = self.words.dictionaries[kind]
        word = known.get(name) or (f"{known['anything_else']}.{name}" if "anything_else" in known else "")
        if not word:
            raise Unspeakable(f"there is no word for {name!r} of {kind}")
        if word.partition(".")[0] in self.bound:
            raise Unspeakable(f"the clause gives the name {word} to something else")
        return word

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Left as it is: before Python 3.12, positions inside a formatted text are not those in the file."""

    # -- names

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and (alias := self.aliases.get(node.id)):
            if alias == "ops":
                self.say(node, self.words.dictionaries["ops"]["anything_else"])
            else:
                self.say(node, self.word("under_test", "identity" if alias == "probe" else alias))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        match node.value:
            case ast.Name(id=name) if self.aliases.get(name) == "ops":
                self.say(node, self.word("ops", node.attr))
            case ast.Attribute() as inner if is_use(inner, "ops"):
                self.say(node, self.word("ops", node.attr))
            case ast.Name(id=name) if name == UNDER_TEST:
                self.say(node, self.word("under_test", node.attr))
            case _:
                self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        """Without the local names that give way to what they are."""
        every = pairs(node)
        kept = [(t, v) for t, v in every if not (isinstance(t, ast.Name) and t.id in self.aliases)]
        for target, value in kept:
            self.visit(target)
            self.visit(value)
        if not kept:
            self.source.delete(node)
        elif len(kept) < len(every):
            targets, values = (", ".join(self.source.of(pair[i]) for pair in kept) for i in (0, 1))
            self.say(node, f"{targets} = {values}")

    def visit_arguments(self, node: ast.arguments) -> None:
        """Without `under_test`."""
        self.generic_visit(node)
        if node.args and node.args[0].arg == UNDER_TEST:
            start, end = self.source.span(node.args[0])
            self.source.replace((start, self.source.span(node.args[1])[0] if len(node.args) > 1 else end), "")

    # -- calls

    def visit_Call(self, node: ast.Call) -> None:
        if is_use(node.func, "array"):
            return self.say(node, self.array(node))
        if is_use(node.func, "probe"):
            return self.say(node, self.made_probe(node))
        for part in (*node.args, *node.keywords):
            self.visit(part)
        match node.func:
            case ast.Attribute() as noted if is_use(noted, "noted"):
                self.say(node, self.directly(node))
            case ast.Attribute() as run if is_use(run, "run", "attempt"):
                self.visit(run)
                for keyword in node.keywords:
                    if keyword.arg not in self.run_keywords:
                        self.source.exchange(node, keyword, "")
            case ast.Call(func=ast.Attribute(attr="using", value=checkpoint)) as using:
                self.visit(checkpoint)
                self.say(node, f"{self.source.of(checkpoint)}({self.given(node, using)})")
            case ast.Attribute(attr="using", value=checkpoint):
                self.visit(checkpoint)
                self.say(node, f"functools.partial({self.source.of(checkpoint)}, {self.options(node)})")
            case ast.Attribute(attr=handle, value=checkpoint) if handle in self.words.dictionaries["handles"]:
                self.say(node, self.handled(handle, checkpoint, node))
            case _:
                self.visit(node.func)
        return None

    def made_probe(self, node: ast.Call) -> str:
        if self.probe == "identity":
            return self.word("under_test", "identity")
        return f"{self.probe}({', '.join(map(self.source.of, node.args))})"

    def directly(self, node: ast.Call) -> str:
        """`noted(f, x)` as `f(x)`."""
        call, *others = node.args
        rest = [self.source.of(part) for part in (*others, *node.keywords)]
        if isinstance(call, ast.Lambda) and not rest:
            return self.source.of(call.body)
        return f"{self.source.of(call)}({', '.join(rest)})"

    def handled(self, handle: str, checkpoint: ast.expr, node: ast.Call) -> str:
        """`checkpoint.group()` as `group_of(checkpoint)`."""
        using = None
        if isinstance(checkpoint, ast.Call) and getattr(checkpoint.func, "attr", "") == "using":
            using, checkpoint = checkpoint, checkpoint.func.value  # type: ignore[attr-defined]
        self.visit(checkpoint)
        arguments = map(self.source.of, (*node.args, *node.keywords))
        given = [
            self.source.of(checkpoint),
            self.options(node) if handle == "decorator" else ", ".join(arguments),
            self.options(using) if using else "",
        ]
        return f"{self.word('handles', handle)}({', '.join(filter(None, given))})"

    def given(self, node: ast.Call, using: ast.Call | None) -> str:
        """What a call is given, and the options that the region has."""
        options = [self.options(using)] if using else []
        return ", ".join([*map(self.source.of, (*node.args, *node.keywords)), *options])

    def options(self, using: ast.Call) -> str:
        """Options by the library's names."""
        found = []
        for keyword in using.keywords:
            self.visit(keyword.value)
            value = self.source.of(keyword.value)
            name, make = self.words.option(keyword.arg or "")
            found.append((f"{name}=" if name else "**") + (f"{make}({value})" if make else value))
        return ", ".join(found)

    def array(self, node: ast.Call) -> str:
        """An array of given values, or of evenly spaced ones."""
        for part in node.args:
            self.visit(part)
        how = {str(k.arg): k.value for k in node.keywords}
        dtype, shape = how.get("dtype", ast.Constant("float64")), how.get("shape", ast.Tuple([ast.Constant(4)]))
        if not isinstance(dtype, ast.Constant) or not isinstance(shape, ast.Tuple):
            raise Unspeakable("there is no word for an array whose dtype or number of dimensions is computed")
        lengths = [ast.unparse(length) for length in shape.elts]
        factors = [
            text if isinstance(n, ast.Constant) else f"({text})" for n, text in zip(shape.elts, lengths, strict=True)
        ]
        filled = {
            "DTYPE": str(dtype.value),
            "SIZE": " * ".join(factors) if lengths != factors else str(math.prod(map(int, lengths))),
            "VALUES": f"[{', '.join(map(self.source.of, node.args))}]",
        }
        template = self.words.dictionaries["array"]["given" if node.args else "spaced"]
        text = re.sub("|".join(filled), lambda found: filled[found[0]], template)
        return text if len(lengths) == 1 else f"{text}.reshape({', '.join(lengths) or '()'})"
