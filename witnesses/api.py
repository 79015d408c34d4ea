"""Faults of the entry point, its options and its contexts."""

import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine, frame
from ckptspec.reference.errors import Stop, SuppressedForwardError
from ckptspec.witnesses.witness import with_api, with_options, with_region, witness, wrapping


class _Context:
    """A context that does what it is told."""

    def __init__(self, enter: Callable[[], Any], leave: Callable[..., Any]) -> None:
        self._enter, self._leave = enter, leave

    def __enter__(self) -> None:
        self._enter()

    def __exit__(self, *exc: Any) -> Any:
        return self._leave(*exc)


def _contexts(checkpointer: Checkpointer, change: Callable[[Callable[[], Any]], Callable[[], Any]]) -> Checkpointer:
    """The checkpointer with `change(context_fn)` in the place of a given `context_fn`."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        if "context_fn" in options:
            options = options | {"context_fn": change(options["context_fn"])}
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("API-01")
def an_option_that_is_given_is_switched_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """`preserve_rng_state=True` is taken for False."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        given = {k: not v if k == "preserve_rng_state" else v for k, v in options.items()}
        return checkpoint(region, args, kwargs, given)

    return wrapping(checkpointer, call)


@witness("API-02")
def options_reach_the_function(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The function is given the options together with its own keyword arguments."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        return checkpoint(region, args, kwargs | options, options)

    return wrapping(checkpointer, call)


@witness("API-03", "DECO-08", variant="reentrant")
def a_form_is_chosen_silently(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A call that chooses no form does not warn."""
    return with_api(checkpointer, checkpoint=functools.partial(checkpointer.api.checkpoint, use_reentrant=True))


@witness("API-04", variant="reentrant")
def the_warning_points_into_the_implementation(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """There is one more function between the call and the warning."""
    original = checkpointer.api.checkpoint
    return with_api(checkpointer, checkpoint=lambda *args, **kwargs: original(*args, **kwargs))


@witness("API-05", "DECO-10")
def keywords_are_dropped(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Keyword arguments that the function can do without don't reach it."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        needed = getattr(region, "__kwdefaults__", None) is None and not region.__defaults__
        return checkpoint(region, args, kwargs if needed else {}, options)

    return wrapping(checkpointer, call)


@witness("API-06", "API-09", "API-12", "API-13", "API-14")
def contexts_are_passed_over(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """`context_fn` is accepted and ignored."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        return checkpoint(region, args, kwargs, {k: v for k, v in options.items() if k != "context_fn"})

    return wrapping(checkpointer, call)


@witness("API-08", "DECO-09")
def an_unknown_check_is_the_default(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """An unknown `determinism_check` is taken for the default."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        if options.get("determinism_check") not in ("none", "values"):
            options = {k: v for k, v in options.items() if k != "determinism_check"}
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("API-07", variant="reentrant")
def the_reentrant_form_ignores_the_check(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The reentrant form accepts any `determinism_check`."""
    return with_options(checkpointer, determinism_check="none")


@witness("API-10")
def every_function_is_kept(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Each function that was ever checkpointed is kept."""
    kept: list[Region] = []

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        kept.append(region)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("API-10", "API-22")
def gradients_are_switched_on(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region records a graph, and enters its contexts, also where gradients are switched off."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        with torch.enable_grad():
            return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("API-11", "GRAD-13")
def forward_runs_twice(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The function is tried out once before it is checkpointed."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        region(*args, **kwargs)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("API-12")
def each_replay_asks_for_contexts(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A replay calls `context_fn` again, for a fresh second context."""

    def change(context_fn: Callable[[], Any]) -> Callable[[], Any]:
        def contexts() -> Any:
            fresh: list[Any] = []

            def enter() -> None:
                fresh.append(context_fn()[1])
                fresh[-1].__enter__()

            return context_fn()[0], _Context(enter, lambda *exc: fresh.pop().__exit__(*exc))

        return contexts

    return _contexts(checkpointer, change)


@witness("API-13", source="NVIDIA/Megatron-LM#7538")
def the_replay_has_no_context(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The replay runs outside of any context."""
    nothing = _Context(lambda: None, lambda *exc: None)
    return _contexts(checkpointer, lambda context_fn: lambda: (context_fn()[0], nothing))


@witness("API-14")
def the_forward_context_sees_no_exception(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The forward context is left as if the function had returned, whatever it raised."""

    def change(context_fn: Callable[[], Any]) -> Callable[[], Any]:
        def contexts() -> Any:
            forward, replay = context_fn()
            return _Context(forward.__enter__, lambda *exc: forward.__exit__(None, None, None)), replay

        return contexts

    return _contexts(checkpointer, change)


@witness("API-15")
def a_suppressed_forward_returns_none(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Where the forward context suppresses an exception, the call returns None."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        try:
            return checkpoint(region, args, kwargs, options)
        except SuppressedForwardError:
            return None

    return wrapping(checkpointer, call)


@witness("API-16", "ERR-07")
def contexts_are_entered_again(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Each replay enters the same context object, which fails if it is written as a generator."""
    patch.setattr(frame, "ContextDecorator", type("Unknown", (), {}))


@witness("API-17")
def the_context_sees_the_early_end(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The exception that ends a replay early passes through the replay's context."""
    run = frame.Replay.run

    def call(self: frame.Replay, args: Any, kwargs: Any) -> None:
        self.frame.function(*args, **kwargs)

    def running(self: frame.Replay, args: Any, kwargs: Any) -> None:
        try:
            run(self, args, kwargs)
        except Stop:
            self._judge()
        finally:
            if self.stopper is not None:
                engine.remove(self.stopper)

    patch.setattr(frame.Replay, "_call", call)
    patch.setattr(frame.Replay, "run", running)


@witness("API-18", "GRAD-05", "DECO-14", source="pytorch/pytorch#33962")
def captures_do_not_count(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A call none of whose arguments needs a gradient is a plain one."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        if not any(getattr(x, "requires_grad", False) for x in (*args, *kwargs.values())):
            return region(*args, **kwargs)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("API-19")
def surplus_arguments_are_dropped(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The function is given as many arguments as it takes, however many there are."""

    def change(region: Any) -> Region:
        taken = region.__code__.co_argcount if isinstance(region, types.FunctionType) else None
        return lambda *args, **kwargs: region(*args[:taken], **kwargs)

    return with_region(checkpointer, change)


@witness("API-20")
def what_a_generator_yields_is_cut_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The arrays that a generator function yields come back without a graph."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        result = checkpoint(region, args, kwargs, options)
        return (y.detach() for y in result) if isinstance(result, types.GeneratorType) else result

    return wrapping(checkpointer, call)


@witness("API-21", "ERR-03")
def errors_are_of_another_class(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """The class that the module calls CheckpointError is none of those that are raised, and no RuntimeError."""
    return with_api(checkpointer, CheckpointError=type("CheckpointError", (Exception,), {}))


@witness("API-23", source="torch.utils.checkpoint")
def without_gradients_arguments_lose_theirs(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Where gradients are off, an argument that a region returns comes back without its graph."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        result = checkpoint(region, args, kwargs, options)
        is_cut = isinstance(result, torch.Tensor) and not torch.is_grad_enabled()
        return result.detach() if is_cut else result

    return wrapping(checkpointer, call)
