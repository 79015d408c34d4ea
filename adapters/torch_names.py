"""Modules with torch.utils.checkpoint's names, over whatever host has torch's names.

What exists is declared, from the signature and the names: `use_reentrant` accepted -> two variants; a missing name ->
that capability absent.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any, Protocol

from ckptspec.adapters import words
from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, Host, HostError, Region, Words, only

OPTIONS = (
    "early_stop", "preserve_rng_state", "determinism_check", "context_fn", "debug", "respect_saved_tensors_hooks",
)  # fmt: skip
SELECTIVE = ("save", "policy")

#: What the non-reentrant form offers wherever it exists.
NON_REENTRANT = {
    Capability.KEYWORDS, Capability.NESTED_ARGUMENTS, Capability.STRUCTURED_RESULTS, Capability.CAPTURED_ONLY,
    Capability.FREE_CAPTURES, Capability.UNPRESERVED_RANDOM, Capability.DETERMINISM_CHECK,
    Capability.PARTIAL_BACKWARD, Capability.HIGHER_ORDER, Capability.GRADIENT_INSIDE,
    Capability.FORWARD_GRAPH, Capability.CHOSEN_INPUTS, Capability.DEFAULT_DEVICE,
    Capability.SAME_ARGUMENTS, Capability.HOOKS_ONCE, Capability.FORWARD_MODE,
}  # fmt: skip
REENTRANT = {Capability.REENTRANT, Capability.UNPRESERVED_RANDOM, Capability.NO_EARLY_STOP}

#: What it offers besides where `checkpoint` has an option.
BY_OPTION = {
    "early_stop": {Capability.EARLY_STOP, Capability.NO_EARLY_STOP},
    "determinism_check": {Capability.NO_DETERMINISM_CHECK},
    "context_fn": {Capability.CONTEXT_FN},
    "debug": {Capability.DEBUG},
    "respect_saved_tensors_hooks": {Capability.SAVED_HOOKS_OPTION},
}
#: ... and where the module has a name.
BY_NAME = {
    "create_selective_checkpoint_contexts": {Capability.POLICY_BY_OP, Capability.POLICY_FUNCTION, Capability.OFFLOAD},
    "set_checkpoint_early_stop": {Capability.EARLY_STOP_SETTING},
    "GraphExecGroup": {Capability.GROUP},
}


class TorchLike(Protocol):
    """A host whose gradients come from `.backward()` if `uses_backward`, which reentrant forms need."""

    uses_backward: bool
    words: Words | None


def adapter_of(
    module: ModuleType,
    *,
    name: str,
    version: str,
    host: Callable[[str], Host],
    operators: Mapping[str, Any],
    also: frozenset[Capability] = frozenset(),
) -> Adapter:
    """The adapter of a module. Raises HostError if it has no function `checkpoint`.

    operators: an operation's name -> what a policy sees of it. also: offered in every form, which no name tells.
    """
    checkpoint = getattr(module, "checkpoint", None)
    if not callable(checkpoint):
        raise HostError(f"{module.__name__} has no function 'checkpoint'")
    forms: dict[str, dict[str, bool]] = {
        "non-reentrant": {"use_reentrant": False},
        "reentrant": {"use_reentrant": True},
    }
    if "use_reentrant" not in inspect.signature(checkpoint).parameters:
        forms = {"only": {}}
    variants = {form: functools.partial(_variant, module, operators, also, options) for form, options in forms.items()}
    return Adapter(name, version, host, variants)


def _variant(
    module: ModuleType,
    operators: Mapping[str, Any],
    also: frozenset[Capability],
    form: dict[str, bool],
    host: TorchLike,
) -> Checkpointer:
    """One form of the module's `checkpoint`."""
    host.uses_backward = form.get("use_reentrant", False)

    def translated(options: dict[str, Any]) -> dict[str, Any]:
        return form | in_words_of(module, operators, options)

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return module.checkpoint(region, *args, **translated(options), **kwargs)

    def decorator(options: dict[str, Any]) -> Any:
        return module.checkpoint(**translated(options))

    def sequential(functions: Iterable[Region], segments: int, inputs: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return module.checkpoint_sequential(functions, segments, *inputs, **translated(options))

    capabilities = also | capabilities_of(module, is_reentrant=host.uses_backward)
    return Checkpointer(
        call,
        capabilities,
        decorator=decorator if Capability.DECORATOR in capabilities else None,
        sequential=sequential if Capability.SEQUENTIAL in capabilities else None,
        group=getattr(module, "GraphExecGroup", None),
        api=module,
        words=words_of(module, host, {"FORM": ", ".join(f"{option}={value}" for option, value in form.items())}),
    )


def words_of(module: ModuleType, host: TorchLike, names: Mapping[str, str], *files: str) -> Words | None:
    """The words of a form: the host's, what is in further files, and how the module is called."""
    if host.words is None:
        return None
    files = (*host.words.files, *files, *((words.TORCH_BACKWARD,) if host.uses_backward else ()))
    return Words(files, {**host.words.names, "API": module.__name__, **names}, (module.__name__,))


def in_words_of(module: ModuleType, operators: Mapping[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    """The suite's options as those of the module."""
    only(options, *OPTIONS, *SELECTIVE)
    plain = {k: v for k, v in options.items() if k in OPTIONS}
    if any(k in options for k in SELECTIVE):
        plain["context_fn"] = functools.partial(
            module.create_selective_checkpoint_contexts, _policy(module, operators, options)
        )
    return plain


def capabilities_of(module: ModuleType, *, is_reentrant: bool) -> frozenset[Capability]:
    """What a form offers, as far as signature and names tell."""
    accepted = inspect.signature(module.checkpoint).parameters
    offered = set(REENTRANT if is_reentrant else NON_REENTRANT)
    if not is_reentrant:
        offered = offered.union(*(more for option, more in BY_OPTION.items() if option in accepted))
        offered = offered.union(*(more for name, more in BY_NAME.items() if hasattr(module, name)))
    if next(iter(accepted.values())).default is None:  # `checkpoint()` without a function
        offered.add(Capability.DECORATOR)
    if hasattr(module, "checkpoint_sequential"):
        offered.add(Capability.SEQUENTIAL)
    return frozenset(offered)


def _policy(module: ModuleType, operators: Mapping[str, Any], options: dict[str, Any]) -> Any:
    """A list of operators, or a policy function, in the module's words."""
    if "save" in options:
        return [operators[name] for name in options["save"]]
    names = {operator: name for name, operator in operators.items()}
    members = module.CheckpointPolicy

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        answer = options["policy"](names.get(operator))
        if isinstance(answer, str):
            return getattr(members, answer)
        return members.MUST_SAVE if answer else members.PREFER_RECOMPUTE

    return policy
