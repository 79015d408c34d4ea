"""SPEC.md: the specification as text, rendered from the clauses themselves.

`python -m ckptspec.conformance.spec` writes it, and in a checkout the README's table of results from the committed
reports; a test fails when either is stale.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator

from ckptspec.conformance import manifest, witnessed
from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import CHAPTERS, FOLDER, SPEC_REVISION, Clause, Profile, registry
from ckptspec.conformance.left_out import LEFT_OUT
from ckptspec.conformance.report.render import summary

PATH = FOLDER / "SPEC.md"
README = FOLDER.parent / "README.md"
RESULTS = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- end of results -->)", re.DOTALL)

HEAD = f"""\
# The specification of activation checkpointing

Revision {SPEC_REVISION}. Rendered from the clauses in `conformance/test_*.py`; do not edit.

Activation checkpointing drops the intermediate values of a *region* after forward and executes the region again, a
*replay*, when backward needs them. This is what an implementation promises.

**Levels** are those of RFC 2119. **Core** clauses bind every implementation; a clause that tests a *capability* binds
those that declare it. Who does not declare it may refuse or do less, but never compute a wrong value. A clause that
needs a *host fact* says nothing about hosts without it.

**Words.** Region: the call that is checkpointed. Forward: its first execution. Replay: a re-execution on behalf of a
backward. Program: a small computation that contains regions. Plain run: the same program without checkpointing.
"""

PROFILES = {
    Profile.CORE: "what every implementation must keep to be called activation checkpointing",
    Profile.FUNCTIONAL: "what hosts with explicit random keys keep besides",
    Profile.TORCH: "what implementations of torch.utils.checkpoint's names keep besides",
    Profile.DEVICE: "what they keep on accelerators",
    Profile.COMPILE: "what they keep under a compiler",
    Profile.WRAP: "what wrappers of modules keep",
    Profile.DIST: "what they keep among several processes",
}


def render() -> str:
    """The text of SPEC.md."""
    clauses = list(registry().values())
    witnesses = witnessed.names()
    lines = [HEAD, *_profiles(clauses)]
    for chapter in CHAPTERS:
        lines += _chapter(chapter, [c for c in clauses if c.chapter == chapter.upper()], witnesses)
    lines += ["## Capabilities", "", *(f"- `{c.name}`: {c.value}" for c in Capability)]
    lines += ["", "## Host facts", "", *(f"- `{f.name}`: {f.value}" for f in Fact)]
    lines += ["", "## Left out", "", *(f"- {id}: {reason}" for id, reason in LEFT_OUT.items())]
    return "\n".join(lines) + "\n"


def _profiles(clauses: list[Clause]) -> Iterator[str]:
    yield "**Profiles.** An implementation *keeps* a profile if each of its MUST clauses passes or says nothing"
    yield "about its host, and at least one passes; nothing inside a profile may be refused. One exception: what is"
    yield "said of the reentrant form may be declined by another form, if one that is offered beside it passes.\n"
    for profile in Profile:
        ids = [c.id for c in clauses if c.profile is profile]
        if ids:
            yield f"- *{profile}*, {PROFILES[profile]}: {', '.join(ids)}."
    yield ""


def _chapter(chapter: str, clauses: list[Clause], witnesses: dict[str, list[str]]) -> Iterator[str]:
    """The module's docstring as introduction, then the clauses."""
    text = inspect.getdoc(importlib.import_module(f"ckptspec.conformance.test_{chapter}")) or ""
    title, _, introduction = text.partition("\n\n")
    yield f"## {title.rstrip('.')}\n"
    if introduction:
        yield introduction + "\n"
    for clause in clauses:
        yield from _clause(clause, witnesses.get(clause.id, []))


def _clause(clause: Clause, witnesses: list[str]) -> Iterator[str]:
    yield f"### {clause.id}\n"
    yield f"**{clause.level}.** {clause.sentence}\n"
    if clause.not_promised:
        yield f"*Not promised:* {clause.not_promised}\n"
    binds = "declaring " + " and ".join(f"`{c.name}`" for c in clause.tests) if clause.tests else "core"
    facts = ", ".join(f"`{f.name}`" for f in sorted(clause.needs, key=lambda f: f.name))
    each = "; ".join(f"{name} {', '.join(map(str, values))}" for name, values in clause.each.items())
    parts = [
        f"Binds: {binds}",
        f"profile {clause.profile}" if clause.profile else "",
        f"needs {facts}" if facts else "",
        f"for each {each}" if each else "",
        f"since revision {clause.since}",
    ]
    proof = f" Witness: {', '.join(f'`{name}`' for name in witnesses)}." if witnesses else ""
    yield f"{'; '.join(filter(None, parts))}. Test: `{clause.name}`.{proof} Source: {_linked(clause.source)}\n"


def _linked(source: str) -> str:
    """`owner/project#12` as a link to that report."""
    return re.sub(r"(?<![\w/])([\w.-]+/[\w.-]+)#(\d+)", r"[\1#\2](https://github.com/\1/issues/\2)", source)


def with_results(readme: str) -> str:
    """The README with its table of results made anew from the committed reports."""
    return RESULTS.sub(lambda _: summary(FOLDER.parent / "reports") + "\n", readme)


def main() -> int:
    """Write all that is rendered; refuse if the specification shrank unnoticed."""
    changelog = README.with_name("CHANGELOG.md")
    found = manifest.shrinkage(
        manifest.committed(), manifest.current(), changelog.read_text(encoding="utf-8") if changelog.exists() else ""
    )
    for line in found:
        print(f"✗ {line}")
    if found:
        return 1
    manifest.PATH.write_text(manifest.dump(manifest.current()), encoding="utf-8")
    PATH.write_text(render(), encoding="utf-8")
    print(f"wrote {manifest.PATH.name} and {PATH.name}: {len(registry())} clauses")
    if README.exists():
        README.write_text(with_results(README.read_text(encoding="utf-8")), encoding="utf-8")
        print("wrote the results into README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
