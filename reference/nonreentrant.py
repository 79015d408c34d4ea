"""The non-reentrant form: the forward records its graph, with slots where saved tensors would be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from ckptspec.reference import debug, engine, selective
from ckptspec.reference.ambient import Ambient
from ckptspec.reference.arguments import Arguments, captured_by, tensors_in
from ckptspec.reference.errors import SuppressedForwardError, VmapError
from ckptspec.reference.frame import Frame, Hooks, Replay
from ckptspec.reference.settings import Options, noop_context_fn

_NOTHING = object()


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    """Run a region's forward and return what `function` returns, the very object (IO-05)."""
    if engine.inside_vmap():
        raise VmapError  # FUNC-06
    tensors = tensors_in((*args, *kwargs.values()))
    hooks = engine.active_hooks()
    # The replay compares what operations save of captured tensors; a change that nothing saves shows only here.
    captured = [t for t in captured_by(function, modules=False) if t.requires_grad]
    is_nested = hooks is not None and isinstance(_owner(hooks), Frame | Replay)
    arguments = Arguments(args, kwargs, tensors, captured, hooked=hooks is not None, nested=is_nested)
    ambient = Ambient(options.preserve_rng_state, tensors)
    frame = Frame(function, arguments, ambient, options.determinism_check, options.early_stop)
    if hooks is not None:
        frame.user_hooks = _of_the_user(hooks)
    if options.context_fn is noop_context_fn and not options.debug:
        with saved_tensors_hooks(frame.pack, frame.unpack):
            result = function(*args, **kwargs)
    else:
        result = _within_contexts(frame, options, args, kwargs)
    frame.forward_is_done()
    return result


def _within_contexts(frame: Frame, options: Options, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if options.debug:
        log = debug.Log()
        forward_context, frame.context, frame.explain = log.of_forward(), log.of_replay(), log.explain
    else:
        forward_context, frame.context = options.context_fn()  # once a call (API-12)
        if isinstance(frame.context, nullcontext):
            frame.context = None
        selective.choose_hooks(forward_context, frame.user_hooks, options.respect_saved_tensors_hooks)
    result = _NOTHING
    with saved_tensors_hooks(frame.pack, frame.unpack), forward_context:
        result = frame.function(*args, **kwargs)
    if result is _NOTHING:
        raise SuppressedForwardError  # API-15
    return result


def _of_the_user(hooks: Hooks) -> Hooks | None:
    """Hooks around a region, seen through the regions that lie between (HOOK-05)."""
    owner = _owner(hooks)
    return owner.user_hooks if isinstance(owner, Frame | Replay) else hooks


def _owner(hooks: Hooks) -> Any:
    """The frame or replay whose hooks these are, or what else they are methods of."""
    return getattr(hooks[0], "__self__", None)
