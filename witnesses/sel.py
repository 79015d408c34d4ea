"""Faults of selective policies."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import ckptspec.reference as reference
from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.reference import engine, selective
from ckptspec.reference.errors import SavedResultConsumedError, UnknownOperationError, UnknownPolicyError
from ckptspec.reference.selective import CheckpointPolicy, ReusingMode, SavingMode
from ckptspec.witnesses.witness import with_options, witness, wrapping

Options = dict[str, Any]


@witness("SEL-01", "SEL-16", "SEL-21", "SEL-26")
def a_policy_is_left_out(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Policies are accepted, and everything is recomputed."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Options) -> Any:
        return checkpoint(region, args, kwargs, {k: v for k, v in options.items() if k not in ("save", "policy")})

    return wrapping(checkpointer, call)


@witness("SEL-02", "SEL-21", "FUZZ-13", source="pytorch/pytorch#176450")
def saved_results_come_back_in_reverse(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Of an operation that ran several times, the last saved result is handed out first."""
    enter = ReusingMode.__enter__

    def reversing(mode: ReusingMode) -> Any:
        for line in mode.book.values():
            line.entries.reverse()
        return enter(mode)

    patch.setattr(ReusingMode, "__enter__", reversing)


@witness("SEL-03", source="pytorch/pytorch#176450")
def a_policy_is_asked_again_in_the_replay(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The policy is also asked at each operation of a replay."""
    create, dispatch = reference.create_selective_checkpoint_contexts, ReusingMode.__torch_dispatch__
    policies: dict[int, Any] = {}

    def remembering(policy: Any, *args: Any, **kwargs: Any) -> Any:
        saving, reusing = create(policy, *args, **kwargs)
        policies[id(reusing.book)] = policy
        return saving, reusing

    def asking(mode: ReusingMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        policies[id(mode.book)](None, func, *args, **(kwargs or {}))
        return dispatch(mode, func, types, args, kwargs)

    patch.setattr(reference, "create_selective_checkpoint_contexts", remembering)
    patch.setattr(ReusingMode, "__torch_dispatch__", asking)


@witness("SEL-01", "SEL-04", source="AI-Hypercomputer/maxtext#3924")
def a_list_names_what_is_not_saved(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Of a list of operations, all others are saved."""

    def known(mode: SavingMode, op: Any) -> CheckpointPolicy | None:
        if isinstance(mode.policy, list):
            return CheckpointPolicy.PREFER_RECOMPUTE if op in mode.policy else CheckpointPolicy.MUST_SAVE
        return None

    patch.setattr(SavingMode, "_known", known)


@witness("SEL-05")
def yes_means_recompute(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A policy's True is taken for the wish to recompute."""
    ask = SavingMode._ask

    def asking(mode: SavingMode, *args: Any) -> CheckpointPolicy:
        answer = ask(mode, *args)
        swapped = {CheckpointPolicy.MUST_SAVE: CheckpointPolicy.PREFER_RECOMPUTE}
        return swapped.get(answer, CheckpointPolicy.MUST_SAVE)

    patch.setattr(SavingMode, "_ask", asking)


@witness("SEL-06", "SEL-17")
def any_policy_will_do(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """What is no policy, and what is no answer of one, is taken for the wish to recompute."""
    create, ask = reference.create_selective_checkpoint_contexts, SavingMode._ask

    def creating(policy: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return create(policy, *args, **kwargs)
        except (TypeError, ValueError):
            return create([], *args, **kwargs)

    def asking(mode: SavingMode, *args: Any) -> CheckpointPolicy:
        try:
            return ask(mode, *args)
        except UnknownPolicyError:
            return CheckpointPolicy.PREFER_RECOMPUTE

    patch.setattr(reference, "create_selective_checkpoint_contexts", creating)
    patch.setattr(SavingMode, "_ask", asking)


@witness("SEL-07")
def a_policy_costs_another_forward(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region with a policy is first run to see which operations it has."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Options) -> Any:
        if "save" in options:
            with torch.no_grad():
                region(*args, **kwargs)
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("SEL-08")
def several_results_come_back_in_another_order(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The results of an operation that has several are saved by their order, which is lost."""
    save = SavingMode._save

    def saving(mode: SavingMode, *args: Any) -> Any:
        saved = save(mode, *args)
        saved.tensors.reverse()
        return saved

    patch.setattr(SavingMode, "_save", saving)


@witness("SEL-09")
def integers_are_not_saved(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Of results that cannot be differentiated, zeros are kept."""
    keep = SavingMode._keep

    def keeping(mode: SavingMode, tensor: torch.Tensor, offload: bool) -> Any:
        return keep(mode, tensor if tensor.is_floating_point() else torch.zeros_like(tensor), offload)

    patch.setattr(SavingMode, "_keep", keeping)


@witness("SEL-10", "SEL-13", source="pytorch/pytorch#119590")
def a_changed_result_goes_unnoticed(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Nothing compares the version of a saved result with that at which it was saved."""
    keep = SavingMode._keep

    def keeping(mode: SavingMode, tensor: torch.Tensor, offload: bool) -> Any:
        kept = keep(mode, tensor, offload)
        kept.version = None
        return kept

    patch.setattr(SavingMode, "_keep", keeping)


@witness("SEL-11", source="torch.utils.checkpoint")
def views_are_saved_like_values(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Results that share memory with an operand are saved, and reused without regard to the operand."""
    patch.setattr(engine, "aliases_its_input", lambda op: False)


@witness("SEL-11", "SEL-12", source="pytorch/pytorch#119590")
def changes_in_place_are_saved_like_values(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """An operation in place is not executed again where its result was saved, and nothing compares versions."""
    patch.setattr(engine, "aliases_its_input", lambda op: False)
    a_changed_result_goes_unnoticed(patch, checkpointer)
    return with_options(checkpointer, determinism_check="none")


@witness("SEL-14", source="pytorch/pytorch#142862")
def a_result_is_handed_out_once(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The second time, memory that nobody has filled is handed out in a saved result's place."""
    dispatch = ReusingMode.__torch_dispatch__

    def careless(mode: ReusingMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return dispatch(mode, func, types, args, kwargs)
        except SavedResultConsumedError:
            return torch.zeros_like(func(*args, **(kwargs or {})))

    patch.setattr(ReusingMode, "__torch_dispatch__", careless)


@witness("SEL-15", source="torch.utils.checkpoint")
def contexts_can_be_used_again(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A pair of contexts hands out saved results in the order in which they came, whichever region asks."""
    enter = SavingMode.__enter__

    def entering(mode: SavingMode) -> Any:
        mode.used = False
        return enter(mode)

    patch.setattr(SavingMode, "__enter__", entering)
    patch.setattr(ReusingMode, "__enter__", engine.DispatchMode.__enter__)


@witness("SEL-16", source="pytorch/pytorch#196956")
def offloading_means_recomputing(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """The offload policies are taken for the wish to recompute."""
    ask = SavingMode._ask

    def asking(mode: SavingMode, *args: Any) -> CheckpointPolicy:
        answer = ask(mode, *args)
        return CheckpointPolicy.PREFER_RECOMPUTE if "OFFLOAD" in answer.name else answer

    patch.setattr(SavingMode, "_ask", asking)


@witness("SEL-18")
def a_policy_that_raises_is_ignored(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """A policy's exception is taken for the wish to recompute."""
    ask = SavingMode._ask

    def asking(mode: SavingMode, *args: Any) -> CheckpointPolicy:
        try:
            return ask(mode, *args)
        except Exception:
            return CheckpointPolicy.PREFER_RECOMPUTE

    patch.setattr(SavingMode, "_ask", asking)


@witness("SEL-19", source="NVIDIA-NeMo/Automodel#3133")
def bookkeeping_counts_as_an_operation(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Every operation that is dispatched is shown to the policy and counted, detaching included."""
    patch.setattr(selective, "SAC_IGNORED_OPS", set())


@witness("SEL-20", source="NVIDIA-NeMo/Automodel#3247")
def unknown_operations_are_executed(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """In a replay, an operation that forward did not have, or less often, is executed without a word."""
    dispatch = ReusingMode.__torch_dispatch__

    def lenient(mode: ReusingMode, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return dispatch(mode, func, types, args, kwargs)
        except UnknownOperationError:
            return func(*args, **(kwargs or {}))

    patch.setattr(ReusingMode, "__torch_dispatch__", lenient)


@witness("SEL-22", source="pytorch/pytorch#175258")
def regions_share_one_book(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """All regions keep their saved results in the same place."""
    create = reference.create_selective_checkpoint_contexts
    shared: selective.Book = {}

    def creating(*args: Any, **kwargs: Any) -> Any:
        saving, reusing = create(*args, **kwargs)
        saving.book = reusing.book = shared
        return saving, reusing

    patch.setattr(reference, "create_selective_checkpoint_contexts", creating)


@witness("SEL-24")
def saved_results_are_kept(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """What a policy saved outlives the region's graph."""
    keep = SavingMode._keep
    kept: list[Any] = []

    def keeping(mode: SavingMode, tensor: torch.Tensor, offload: bool) -> Any:
        kept.append(keep(mode, tensor, offload))
        return kept[-1]

    patch.setattr(SavingMode, "_keep", keeping)


@witness("SEL-25")
def a_policy_is_asked_without_gradients(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Where gradients are off, the policy is asked all the same."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Options) -> Any:
        if "policy" in options and not torch.is_grad_enabled():
            options["policy"]("exp")
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)


@witness("SEL-27")
def draws_are_never_saved(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> None:
    """Random operations are recomputed, whatever the policy says: the generator is trusted to be restored."""
    known = SavingMode._known

    def knowing(mode: SavingMode, op: Any) -> CheckpointPolicy | None:
        return CheckpointPolicy.PREFER_RECOMPUTE if engine.is_random(op) else known(mode, op)

    patch.setattr(SavingMode, "_known", knowing)


@witness("SEL-28", on="tape", variant="tape", source="jax.checkpoint_policies")
def names_are_left_out(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """Names of values to be saved are accepted, and everything is recomputed."""

    def call(checkpoint: Any, region: Region, args: tuple[Any, ...], kwargs: Any, options: Options) -> Any:
        return checkpoint(region, args, kwargs, {k: v for k, v in options.items() if k != "save_names"})

    return wrapping(checkpointer, call)
