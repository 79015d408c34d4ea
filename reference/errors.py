"""What can go wrong, one class a cause.

Each message says what was asked, what was found and what to do. All are `CheckpointError` (a `RuntimeError`, as in
torch) except wrong options, which are `ValueError`. `Stop` is no error: it is how a replay ends early.
"""

from __future__ import annotations

from typing import Any

TIP = (
    "Pass debug=True to checkpoint(...), or wrap the forward in set_checkpoint_debug_enabled(True), to see the operators "
    "of the forward and of the replay side by side. If the region calls a compiled function, the replay may have chosen "
    "another compiled graph: mark varying sizes with torch._dynamo.mark_dynamic (pytorch/pytorch#166926)."
)


class Stop(BaseException):
    """Ends a replay whose values are complete. Not an `Exception`: handlers in the region must not see it (STOP-06)."""

    def __init__(self, replay: object) -> None:
        super().__init__("the replay of a checkpointed region has all it needs; let this signal pass")
        self.replay = replay


class CheckpointError(RuntimeError):
    """Base of all causes below. Source: torch.utils.checkpoint.CheckpointError."""


# ---- the replay is not the forward


class ReplayMismatchError(CheckpointError):
    """A replay did not save what the forward saved. Base of the mismatches below."""


class CountMismatchError(ReplayMismatchError):
    def __init__(self, saved: int, replayed: int | None) -> None:
        found = "more" if replayed is None else str(replayed)
        super().__init__(
            f"A different number of tensors was saved during the original forward ({saved}) and the replay ({found}): the "
            f"region took another path. Make it depend on its arguments only. {TIP}"
        )


class MetadataMismatchError(ReplayMismatchError):
    def __init__(self, mismatches: list[tuple[int, Any, Any]]) -> None:
        rows = "\n".join(
            f"tensor at position {i}:\n  saved metadata: {_metadata(saved)}\n  recomputed metadata: {_metadata(found)}"
            for i, saved, found in mismatches
        )
        super().__init__(
            "Recomputed values for the following tensors have different metadata than during the forward:\n"
            f"{rows}\nMake the region depend on its arguments only, or pass determinism_check='none'. {TIP}"
        )


class ValueMismatchError(ReplayMismatchError):
    def __init__(self, position: int) -> None:
        super().__init__(
            f"tensor at position {position}: the recomputed value differs from the one saved in the forward "
            "(determinism_check='values' compares bits). Something that the region reads, or a kernel's order of "
            f"summation, has changed. {TIP}"
        )


class MutatedCaptureError(ReplayMismatchError):
    def __init__(self, position: int, saved: int, found: int) -> None:
        super().__init__(
            f"tensor at position {position}: it was at version {saved} when the forward saved it and is at version {found} "
            "in the replay, so a tensor that the region reads was modified in place after the forward, or by the region "
            "itself. Modify a clone, or do it after backward; determinism_check='none' switches this comparison off."
        )


class MutatedArgumentError(CheckpointError):
    def __init__(self, saved: int, found: int, where: str) -> None:
        super().__init__(
            f"an argument of a checkpointed region (a tensor of shape {where}) was modified by an inplace operation: it is at "
            f"version {found}; expected version {saved}, that of the forward. A replay from it would give another gradient. "
            "Modify a clone, or do it after backward."
        )


class OverwrittenValueError(CheckpointError):
    def __init__(self, position: int, saved: int, found: int) -> None:
        super().__init__(
            f"tensor at position {position}: a value needed for the gradient was modified by an inplace operation inside the "
            f"region after it was saved: it is at version {found}; expected version {saved}. Without checkpointing the same "
            "code fails likewise. Use the out-of-place operation."
        )


# ---- misuse in the region's surroundings


class GroupOverlapError(CheckpointError):
    def __init__(self, position: int) -> None:
        super().__init__(
            f"tensor at position {position} was already unpacked once: two backward calls that overlap (that need the same "
            "saved value) are not allowed under one GraphExecGroup. Run the second one outside of the group."
        )


class GroupNestingError(CheckpointError):
    def __init__(self, active: object) -> None:
        super().__init__(f"GraphExecGroup contexts cannot be nested: already inside of {active}. Leave it first.")


class SuppressedForwardError(CheckpointError):
    def __init__(self) -> None:
        super().__init__(
            "the forward context provided by context_fn suppressed an exception raised during the checkpointed forward, so "
            "there is no result to return. Let exceptions pass, or handle them inside of the function."
        )


class VmapError(CheckpointError):
    def __init__(self) -> None:
        super().__init__(
            "checkpoint was called inside of torch.func.vmap: the replay would run outside of it. Put vmap inside of the "
            "region instead: checkpoint(lambda *a: torch.func.vmap(f)(*a), *args, use_reentrant=False)."
        )


# ---- reentrant form


class ReentrantInputsError(CheckpointError):
    def __init__(self) -> None:
        super().__init__(
            "checkpoint(use_reentrant=True) is incompatible with torch.autograd.grad() and with backward(inputs=...): its "
            "replay would accumulate into every leaf. Use use_reentrant=False, or call backward() without inputs."
        )


class ReentrantCreateGraphError(CheckpointError):
    def __init__(self) -> None:
        super().__init__(
            "checkpoint(use_reentrant=True) cannot build a graph of its backward: create_graph=True would silently lose the "
            "second order. Use use_reentrant=False."
        )


class ReentrantOutputError(CheckpointError):
    def __init__(self, kind: str) -> None:
        super().__init__(
            f"checkpoint(use_reentrant=True) got a {kind} with tensors as the function's result: tensors in it would be "
            "silently detached. Return a tensor or a flat tuple of tensors, or use use_reentrant=False."
        )


class ReentrantNoGradientError(CheckpointError):
    def __init__(self) -> None:
        super().__init__(
            "none of output has requires_grad=True in the replay: this checkpoint(use_reentrant=True) is not necessary, or "
            "the function detaches its result. Call the function directly, or use use_reentrant=False."
        )


# ---- devices


class UnsupportedAcceleratorError(CheckpointError):
    def __init__(self, kind: str, missing: list[str]) -> None:
        super().__init__(
            f"preserve_rng_state=True, but the region uses a tensor on {kind!r} and its random state cannot be kept: "
            f"torch.{kind} lacks {', '.join(missing)}. Pass preserve_rng_state=False if the region draws no random numbers."
        )


class DeviceInitializedInsideError(CheckpointError):
    def __init__(self, kind: str) -> None:
        super().__init__(
            f"the state of device type {kind!r} was initialized inside of a checkpointed forward, so its random state at the "
            "region's start was not kept. Create a tensor on it before, or pass preserve_rng_state=False."
        )


# ---- selective policies


class ContextReuseError(CheckpointError):
    def __init__(self) -> None:
        super().__init__(
            "a pair of selective contexts serves one region, once; this one was used before. Pass a function that makes new "
            "ones each time: context_fn=functools.partial(create_selective_checkpoint_contexts, policy)."
        )


class SavedResultConsumedError(CheckpointError):
    def __init__(self, op: object) -> None:
        super().__init__(
            f"trying to backward an extra time through a selective region: the result of {op} was saved by a MUST_* policy, "
            "so it may not be recomputed, and it was released by the first replay. Use a PREFER_* policy, which recomputes "
            "it from the second replay on, or run the backward calls under one GraphExecGroup."
        )


class SavedResultMutatedError(CheckpointError):
    def __init__(self, op: object) -> None:
        super().__init__(
            f"the result of {op}, cached during selective activation checkpoint, has been mutated. Modify a clone, recompute "
            "this op, or pass allow_cache_entry_mutation=True, which keeps a copy."
        )


class UnknownOperationError(CheckpointError):
    def __init__(self, op: object, index: int) -> None:
        found = "not found in storage" if index == 0 else f"invocation index {index} not found in storage"
        super().__init__(
            f"{op} encountered during a selective replay, but {found}: the forward did not run it so often. The region "
            "depends on something that changed between forward and backward."
        )


class UnknownPolicyError(CheckpointError):
    def __init__(self, op: object, result: object) -> None:
        super().__init__(
            f"the policy returned {result!r} for {op}; expected a member of CheckpointPolicy, or a bool (True saves)."
        )


def _metadata(described: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("shape", "dtype", "device"), described, strict=False))
