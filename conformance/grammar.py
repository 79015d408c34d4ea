"""What drawn programs may contain: of what a clause asks for, all that the host has and the checkpointer offers."""

from __future__ import annotations

from dataclasses import dataclass

from ckptspec.conformance.backend import Capability, Checkpointer, Fact, Host, MissingFact
from ckptspec.conformance.operations import CHANGING, OTHERS, PRODUCT, RANDOM, SAVING, Kind, Operation

#: What a program may be given; the first array always has a gradient.
PRIMALS = (
    (Kind((3,)), Kind((3,)), Kind(())),
    (Kind((2, 3)), Kind((3,)), Kind((3, 2))),
    (Kind((3, 3)), Kind((3, 3), "int64"), Kind(())),
    (Kind((2, 2), "float32"), Kind((2, 1), "float32"), Kind((2,))),
    (Kind(()), Kind((4,)), Kind((4,), "int64")),
)
#: ... where there is autocast, which changes products of such matrices.
SQUARE = Kind((3, 3), "float32")


@dataclass(frozen=True)
class Form:
    """A way to hand an array over: its text in the call, how the region takes it out, and what that needs."""

    passed: str
    taken: str = ""
    needs: frozenset[Capability] = frozenset()


FORMS = (
    Form("{outside}"),
    Form("{inside}={outside}", needs=frozenset({Capability.KEYWORDS})),
    Form("[{outside}]", "{inside} = {inside}[0]", frozenset({Capability.NESTED_ARGUMENTS})),
    Form('{{"key": {outside}}}', '{inside} = {inside}["key"]', frozenset({Capability.NESTED_ARGUMENTS})),
)

#: Option -> its values as they are written, and what each needs.
OPTIONS: dict[str, dict[str, Capability]] = {
    "early_stop": {"False": Capability.NO_EARLY_STOP, "True": Capability.NO_EARLY_STOP},
    "preserve_rng_state": {
        "False": Capability.UNPRESERVED_RANDOM,
        "True": Capability.UNPRESERVED_RANDOM,
        '"exclusive"': Capability.EXCLUSIVE_RANDOM,
    },
    "determinism_check": {'"none"': Capability.NO_DETERMINISM_CHECK, '"values"': Capability.VALUE_CHECK},
}

#: Operations that a policy may save.
SAVED = ("sin", "exp", "multiply", "matmul", "cos", "tanh", "add", "reshape")


@dataclass(frozen=True)
class Way:
    """How backward goes, as lines of Python, and what that needs."""

    lines: tuple[str, ...]
    needs: frozenset[Fact | Capability] = frozenset()


WAYS = {
    "once": Way(("return pull()",)),
    "twice": Way(("return pull(retain=True), pull()",), frozenset({Fact.RETAIN})),
    "in parts": Way(
        ("return pull(outputs=[0], retain=True), pull(outputs=[1])",),
        frozenset({Fact.RETAIN, Fact.SEPARATE_OUTPUTS, Capability.PARTIAL_BACKWARD}),
    ),
    "for one input": Way(
        ("return pull(inputs=[0], retain=True), pull()",), frozenset({Fact.RETAIN, Capability.CHOSEN_INPUTS})
    ),
    "between draws": Way(("return ops.uniform_like(a), pull(), ops.uniform_like(a)",), frozenset({Fact.GLOBAL_RANDOM})),
    # The program has a list, `broken`, and a region of it that raises as long as there is something in the list.
    "after a failure": Way(
        (
            'broken.append("the first try")',
            "try:",
            "    pull(retain=True)",
            "except KeyError:",
            "    pass",
            "broken.clear()",
            "return pull()",
        ),
        frozenset({Fact.RETAIN, Fact.EAGER}),
    ),
    "in a group": Way(
        ("with checkpoint.group():", "    return pull(outputs=[0], retain=True), pull(outputs=[1])"),
        frozenset({Fact.RETAIN, Fact.SEPARATE_OUTPUTS, Capability.GROUP}),
    ),
}


@dataclass(frozen=True)
class Grammar:
    """What programs are drawn from.

    operations: with repetitions, for those that are wanted more often. blocks: contexts that statements may stand in.
    offered: regions do what these allow. options: (name, values as they are written). settings: values for the context
    that overrides early stop. saved: operations that a policy may save; is_deciding: it is a function, not a list.
    ways: names in WAYS. depth: of regions in regions, at most.
    """

    primals: tuple[tuple[Kind, ...], ...]
    operations: tuple[Operation, ...]
    blocks: tuple[str, ...] = ()
    offered: frozenset[Capability] = frozenset()
    options: tuple[tuple[str, tuple[str, ...]], ...] = ()
    settings: tuple[str, ...] = ()
    saved: tuple[str, ...] = ()
    is_deciding: bool = False
    ways: tuple[str, ...] = ("once",)
    depth: int = 4


def grammar(
    host: Host,
    checkpointer: Checkpointer,
    *,
    random: bool = False,
    in_place: bool = False,
    autocast: bool = False,
    options: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    policies: str = "",
    ways: tuple[str, ...] = ("once",),
    depth: int = 4,
) -> Grammar:
    """The grammar for what a clause asks for.

    random, in_place, autocast: also operations that draw numbers, that change an array, and parts under autocast.
    options: of regions, names in OPTIONS; also: more of them, if they are offered. policies: "lists" or "functions".
    ways: names in WAYS. Options and ways of which nothing is offered are drawn all the same, and refused.
    Raises MissingFact if there is no autocast.
    """
    if autocast and not host.ops.has("autocast"):
        raise MissingFact(f"{host.name} has no operation 'autocast'")
    offered = checkpointer.capabilities
    has = frozenset[Fact | Capability](host.facts | offered)
    usual = [o for o in SAVING + OTHERS + SAVING if host.ops.has(*o.needs)]
    random = random and Fact.GLOBAL_RANDOM in host.facts
    wanted = [o for o in RANDOM * random + CHANGING * in_place + (PRODUCT,) * autocast if host.ops.has(*o.needs)]
    often = len(usual) // (3 * len(wanted)) if wanted else 0  # a third as often as the usual ones together
    possible = {o: values for o in options + also if (values := _offered(OPTIONS[o], offered))}
    possible = possible or {o: tuple(OPTIONS[o]) for o in options}
    return Grammar(
        primals=((SQUARE, SQUARE, SQUARE),) if autocast else PRIMALS,
        operations=(*usual, *wanted * often),
        blocks=tuple(b for b in ("no_grad", *["autocast"] * (4 * autocast)) if host.ops.has(b)),
        offered=offered,
        options=tuple(possible.items()),
        settings=("", "False", "True") if "early_stop" in possible and Capability.EARLY_STOP_SETTING in offered else (),
        saved=SAVED + ("uniform_like",) * random if policies else (),
        is_deciding=policies == "functions",
        ways=tuple(way for way in ways if WAYS[way].needs <= has) or ways,
        depth=depth,
    )


def _offered(values: dict[str, Capability], offered: frozenset[Capability]) -> tuple[str, ...]:
    return tuple(value for value, needed in values.items() if needed in offered)
