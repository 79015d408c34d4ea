"""jax.checkpoint."""

from __future__ import annotations

import functools
from typing import Any

import jax

from ckptspec.adapters.hosts.jax_host import PRIMITIVES, JaxHost
from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, Region, only

OPERATIONS = {primitive: name for name, primitive in PRIMITIVES.items()}

# What jax documents, or does by construction: it replays a trace, of which only what backward needs is left.
CAPABILITIES = frozenset(
    {
        Capability.KEYWORDS,
        Capability.NESTED_ARGUMENTS,
        Capability.STRUCTURED_RESULTS,
        Capability.CAPTURED_ONLY,
        Capability.FREE_CAPTURES,
        Capability.DECORATOR,
        Capability.EARLY_STOP,
        Capability.PARTIAL_BACKWARD,
        Capability.HIGHER_ORDER,
        Capability.GRADIENT_INSIDE,
        Capability.POLICY_BY_OP,
        Capability.POLICY_BY_NAME,
        Capability.POLICY_FUNCTION,
    }
)


def variant(host: JaxHost) -> Checkpointer:
    return Checkpointer(_call, CAPABILITIES, _decorator, words=host.words)


def _call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    # jax traces every argument; what is no array is passed through only if the caller says so, by position. It has no
    # such way for keywords (0.10 accepts `static_argnames` and ignores it), nor for a container that also holds arrays.
    static = tuple(i for i, arg in enumerate(args) if not _holds_array(arg))
    return jax.checkpoint(region, static_argnums=static, **_translated(options))(*args, **kwargs)


def _decorator(options: dict[str, Any]) -> Any:
    return functools.partial(jax.checkpoint, **_translated(options))


def _holds_array(argument: object) -> bool:
    return any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(argument))


def _translated(options: dict[str, Any]) -> dict[str, Any]:
    only(options, "save", "save_names", "policy")
    policies = []
    if "save" in options:
        saved = {PRIMITIVES[name] for name in options["save"]}
        policies.append(lambda primitive, *_, **__: primitive.name in saved)
    if "save_names" in options:
        policies.append(jax.checkpoint_policies.save_only_these_names(*options["save_names"]))
    if "policy" in options:
        policies.append(lambda primitive, *_, **__: bool(options["policy"](OPERATIONS.get(primitive.name))))
    return {"policy": functools.reduce(jax.checkpoint_policies.save_from_both_policies, policies)} if policies else {}


adapter = Adapter("jax", jax.__version__, JaxHost, {"checkpoint": variant})
