"""`--adapter=dropin:MODULE`: any module with torch.utils.checkpoint's names over torch tensors. No adapter to write.

What exists is declared, from the signature and the names: `use_reentrant` accepted -> two variants; a missing name ->
that capability absent.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any

from ckptspec.adapters.hosts.torch_host import OPERATORS, TorchHost
from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, HostError, Region, only

NON_REENTRANT = frozenset(Capability) - {Capability.POLICY_BY_NAME}
REENTRANT = frozenset({Capability.UNPRESERVED_RANDOM, Capability.NO_EARLY_STOP})

OPTIONS = ("early_stop", "preserve_rng_state", "determinism_check")
SELECTIVE = ("save", "policy")


def adapter_of(module: ModuleType, *, name: str, version: str) -> Adapter:
    """The adapter of a module with torch.utils.checkpoint's names. Raises HostError if it has no `checkpoint`."""
    checkpoint = getattr(module, "checkpoint", None)
    if not callable(checkpoint):
        raise HostError(f"{module.__name__} has no function 'checkpoint'")
    accepted = inspect.signature(checkpoint).parameters
    variants = (
        {"non-reentrant": functools.partial(_variant, module, use_reentrant=False),
         "reentrant": functools.partial(_variant, module, use_reentrant=True)}
        if "use_reentrant" in accepted
        else {"only": functools.partial(_variant, module)}
    )  # fmt: skip
    return Adapter(name, version, TorchHost, variants)


def _variant(module: ModuleType, host: TorchHost, **form: bool) -> Checkpointer:
    """One form of the module's `checkpoint`. A reentrant one needs gradients by `.backward()`."""
    is_reentrant = form.get("use_reentrant", False)
    host.uses_backward = is_reentrant
    accepted = inspect.signature(module.checkpoint).parameters
    has_decorator = accepted and next(iter(accepted.values())).default is None

    def translated(options: dict[str, Any]) -> dict[str, Any]:
        only(options, *OPTIONS, *SELECTIVE)
        plain = {k: v for k, v in options.items() if k in OPTIONS}
        if any(k in options for k in SELECTIVE):
            plain["context_fn"] = functools.partial(
                module.create_selective_checkpoint_contexts, _policy(module, options)
            )
        return form | plain

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        return module.checkpoint(region, *args, **translated(options), **kwargs)

    def decorator(options: dict[str, Any]) -> Any:
        return module.checkpoint(**translated(options))

    capabilities = REENTRANT if is_reentrant else NON_REENTRANT
    if has_decorator:
        capabilities |= {Capability.DECORATOR}
    else:
        capabilities -= {Capability.DECORATOR}
    if "early_stop" not in accepted:
        capabilities -= {Capability.EARLY_STOP}
    if "determinism_check" not in accepted:
        capabilities -= {Capability.NO_DETERMINISM_CHECK}
    if not hasattr(module, "create_selective_checkpoint_contexts"):
        capabilities -= {Capability.POLICY_BY_OP, Capability.POLICY_FUNCTION}
    return Checkpointer(call, capabilities, decorator if has_decorator else None)


def _policy(module: ModuleType, options: dict[str, Any]) -> Any:
    """A list of operators, or a policy function, in the module's words."""
    if "save" in options:
        return [OPERATORS[name] for name in options["save"]]
    names = {operator: name for name, operator in OPERATORS.items()}
    members = module.CheckpointPolicy

    def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
        is_saved = options["policy"](names.get(operator))
        return members.MUST_SAVE if is_saved else members.PREFER_RECOMPUTE

    return policy
