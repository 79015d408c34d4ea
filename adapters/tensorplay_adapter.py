"""tensorplay.utils.checkpoint, non-reentrant and reentrant: torch 2.14's names over TensorPlay's tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorplay
from tensorplay.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from ckptspec.adapters.hosts.tensorplay_host import OPERATORS, TensorPlayHost
from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, Region, only

NON_REENTRANT = frozenset(Capability) - {Capability.POLICY_BY_NAME}
#: Torch's, and keywords: the signature takes them in this form too.
REENTRANT = frozenset(
    {Capability.UNPRESERVED_RANDOM, Capability.NO_EARLY_STOP, Capability.DECORATOR, Capability.KEYWORDS}
)

OPTIONS = ("early_stop", "preserve_rng_state", "determinism_check")
SELECTIVE = ("save", "policy")


def _variant(host: TensorPlayHost, *, use_reentrant: bool) -> Checkpointer:
    host.uses_backward = use_reentrant

    def translated(options: dict[str, Any]) -> dict[str, Any]:
        only(options, *OPTIONS, *SELECTIVE)
        words = {"use_reentrant": use_reentrant} | {k: v for k, v in options.items() if k in OPTIONS}
        if any(k in options for k in SELECTIVE):
            words["context_fn"] = functools.partial(create_selective_checkpoint_contexts, _policy(options))
        return words

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return checkpoint(region, *args, **translated(options), **kwargs)

    def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
        found: Callable[[Region], Region] = checkpoint(**translated(options))
        return found

    return Checkpointer(call, REENTRANT if use_reentrant else NON_REENTRANT, decorator)


def _policy(options: dict[str, Any]) -> Any:
    """A list of functions, or a policy function, in TensorPlay's words."""
    if "save" in options:
        return [OPERATORS[name] for name in options["save"]]
    names = {operator: name for name, operator in OPERATORS.items()}

    def policy(context: Any, function: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        is_saved = options["policy"](names.get(function))
        return CheckpointPolicy.MUST_SAVE if is_saved else CheckpointPolicy.PREFER_RECOMPUTE

    return policy


adapter = Adapter(
    "tensorplay",
    tensorplay.__version__,
    TensorPlayHost,
    {
        "non-reentrant": functools.partial(_variant, use_reentrant=False),
        "reentrant": functools.partial(_variant, use_reentrant=True),
    },
)
