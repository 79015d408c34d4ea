"""What can go wrong, one class a cause.

Each text says what was asked, what was found and what to do. All are `CheckpointError` (a `RuntimeError`, as in torch)
except wrong options, which are `ValueError`. `Stop` is no error: it is how a replay ends early.
"""

from __future__ import annotations

from typing import Any


class Stop(BaseException):
    """Ends a replay whose values are complete. Not an `Exception`: handlers in the region must not see it (STOP-06)."""

    def __init__(self, replay: object) -> None:
        super().__init__("a replay of a checkpointed region has all it needs; let this signal pass")
        self.replay = replay


class CheckpointError(RuntimeError):
    """Base of all causes. Source: torch.utils.checkpoint.CheckpointError."""

    text = "{}"

    def __init__(self, *found: Any) -> None:
        super().__init__(" ".join(self.text.split()).format(*found))


# ---- the replay is not the forward


class ReplayMismatchError(CheckpointError):
    """A replay did not save what the forward saved: base of the mismatches below."""

    tip = """
        To see the operators of forward and replay side by side, pass debug=True to checkpoint(...) or wrap the
        forward in set_checkpoint_debug_enabled(True). If the region calls a compiled function, the replay may have
        chosen another compiled graph: mark varying sizes with torch._dynamo.mark_dynamic (pytorch/pytorch#166926)."""

    def __init__(self, *found: Any) -> None:
        super().__init__(*found)
        if self.text != CheckpointError.text:
            self.args = (f"{self.args[0]} {' '.join(self.tip.split())}",)


class CountMismatchError(ReplayMismatchError):
    text = """
        A different number of tensors was saved during the original forward ({}) and the replay ({}): the region
        took another path. Make it depend on its arguments only."""


class MetadataMismatchError(ReplayMismatchError):
    text = """
        Recomputed values have different metadata than those saved in the forward: {}. Make the region depend on its
        arguments only, or pass determinism_check='none'."""

    def __init__(self, mismatches: list[tuple[int, Any, Any]]) -> None:
        names = "shape", "dtype", "device"
        rows = [
            f"tensor at position {i}: saved metadata: {dict(zip(names, saved, strict=False))}, "
            f"recomputed metadata: {dict(zip(names, found, strict=False))}"
            for i, saved, found in mismatches
        ]
        super().__init__("; ".join(rows))


class ValueMismatchError(ReplayMismatchError):
    text = """
        tensor at position {}: the recomputed value differs from the one saved in the forward
        (determinism_check='values' compares bits). Something that the region reads, or a kernel's order of
        summation, has changed."""


class MutatedCaptureError(ReplayMismatchError):
    text = """
        tensor at position {}: it was at version {} when the forward saved it and is at version {} in the replay: a
        tensor that the region reads was modified in place after the forward, or by the region itself. Modify a
        clone, or do it after backward; determinism_check='none' switches this comparison off."""


class MutatedArgumentError(CheckpointError):
    text = """
        a tensor of shape {} that a checkpointed region was called with, or holds, was modified by an inplace
        operation: it is at version {}; expected version {}, that of the forward. A replay would give another
        gradient. Modify a clone, or do it after backward."""


class OverwrittenValueError(CheckpointError):
    text = """
        tensor at position {}: a value needed for the gradient was modified by an inplace operation inside the
        region after it was saved: it is at version {}; expected version {}. Without checkpointing the same code
        fails likewise. Use the out-of-place operation."""


# ---- misuse around a region


class GroupOverlapError(CheckpointError):
    text = """
        tensor at position {} was already unpacked once: two backward calls that overlap (that need the same saved
        value) are not allowed under one GraphExecGroup. Run the second one outside of the group."""


class GroupNestingError(CheckpointError):
    text = "GraphExecGroup contexts cannot be nested: already inside of {}. Leave it first."


class SuppressedForwardError(CheckpointError):
    text = """
        the forward context provided by context_fn suppressed an exception raised during the checkpointed forward,
        so there is no result to return. Let exceptions pass, or handle them inside of the function."""


class VmapError(CheckpointError):
    text = """
        checkpoint was called inside of torch.func.vmap, but its replay would run outside. Put vmap inside of the
        region: checkpoint(lambda *a: torch.func.vmap(f)(*a), *args, use_reentrant=False)."""


# ---- the reentrant form


class ReentrantInputsError(CheckpointError):
    text = """
        checkpoint(use_reentrant=True) is incompatible with torch.autograd.grad() and with backward(inputs=...): its
        replay would accumulate into every leaf. Use use_reentrant=False, or call backward() without inputs."""


class ReentrantCreateGraphError(CheckpointError):
    text = """
        checkpoint(use_reentrant=True) cannot build a graph of its backward: create_graph=True would silently lose
        the second order. Use use_reentrant=False."""


class ReentrantOutputError(CheckpointError):
    text = """
        checkpoint(use_reentrant=True) got a {} with tensors as the function's result, which would come out silently
        detached. Return a tensor or a flat tuple of tensors, or use use_reentrant=False."""


class ReentrantNoGradientError(CheckpointError):
    text = """
        none of output has requires_grad=True in the replay: this checkpoint(use_reentrant=True) is not necessary,
        or the function detaches its result. Call the function directly, or use use_reentrant=False."""


# ---- devices


class UnsupportedAcceleratorError(CheckpointError):
    text = """
        preserve_rng_state=True, but the region uses a tensor on {0!r}, whose random state cannot be kept: torch.{0}
        lacks {1}. Pass preserve_rng_state=False if the region draws no random numbers."""


class DeviceInitializedInsideError(CheckpointError):
    text = """
        device type {!r} was initialized inside of a checkpointed forward, so its random state at the region's start
        is not known. Create a tensor on it before, or pass preserve_rng_state=False."""


# ---- selective policies


class ContextReuseError(CheckpointError):
    text = """
        a pair of selective contexts serves one region, once; this one was used before. Pass a function that makes
        new ones: context_fn=functools.partial(create_selective_checkpoint_contexts, policy)."""


class SavedResultConsumedError(CheckpointError):
    text = """
        trying to backward an extra time through a selective region: the result of {} was saved by a MUST_* policy,
        so it may not be recomputed, and the first replay released it. Use a PREFER_* policy, which recomputes it
        from the second replay on, or run the backward calls under one GraphExecGroup."""


class SavedResultMutatedError(CheckpointError):
    text = """
        the result of {}, cached during selective activation checkpoint, has been mutated. Modify a clone, recompute
        this op, or pass allow_cache_entry_mutation=True, which keeps a copy."""


class UnknownOperationError(CheckpointError):
    text = """
        {} encountered during a selective replay, but its invocation index {} was not found in storage: the forward
        did not run it so often. The region depends on something that changed between forward and backward."""


class UnknownPolicyError(CheckpointError):
    text = "the policy returned {1!r} for {0}; expected a member of CheckpointPolicy, or a bool (True saves)."
