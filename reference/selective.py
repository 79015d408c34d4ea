"""Selective checkpointing: a policy says, op by op, what the forward saves and what the replay executes again.

A pair of dispatch modes shares one book. In the forward, SavingMode asks the policy and notes each operator's result,
or that it is to be recomputed. In the replay, ReusingMode hands the n-th result of an operator to its n-th call.

- Views and in-place operators are always executed again, whatever the policy says: a saved view would not see the
  recomputed tensor that it should alias (SEL-11, LB-03), and a saved in-place result would leave its argument as it
  was (SEL-12). Views cost nothing.
- Beside the result of a random operator stands the state of the generator after it, which the replay installs, so that
  later draws are those of the forward (RNG-14, LB-02). 5 kB on the CPU, 16 bytes on CUDA.
- A result is handed out once and released (SEL-24). A later replay recomputes it if the policy said PREFER_*, and
  raises if it said MUST_* (SEL-14).
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ckptspec.reference import engine
from ckptspec.reference.arguments import tensors_in
from ckptspec.reference.devices import DeviceState, state_behind
from ckptspec.reference.errors import (
    ContextReuseError,
    SavedResultConsumedError,
    SavedResultMutatedError,
    UnknownOperationError,
    UnknownPolicyError,
)
from ckptspec.reference.frame import Hooks


class CheckpointPolicy(enum.Enum):
    """What a policy may answer. MUST_* and PREFER_* differ in a second replay, see above, and for torch.compile.

    *_SAVE keeps the result; *_CPU_OFFLOAD keeps a copy of it in (pinned) CPU memory, also not replayed (SEL-16);
    *_RECOMPUTE keeps nothing. Source: torch.utils.checkpoint.CheckpointPolicy.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


# Compared by identity, each time an operator runs: an enum member's hash is a Python call.
_MUST_RECOMPUTE, _RECOMPUTE = CheckpointPolicy.MUST_RECOMPUTE, CheckpointPolicy.PREFER_RECOMPUTE
_MUST_OFFLOAD, _OFFLOAD = CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD
_MUST_SAVE = CheckpointPolicy.MUST_SAVE

# Bookkeeping that forward and replay do differently: never shown to a policy, never counted (SEL-19).
SAC_IGNORED_OPS: set[Any] = {
    torch.ops.aten.detach.default,
    torch.ops.prim.device.default,
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit._RecordFunction,
    *engine.METADATA_OPS,
}


class SelectiveCheckpointContext:
    """What a policy is told beside the operator and its arguments: `op_output`, the result.

    `is_recompute` is always False: replays do not ask (SEL-03). Source: torch.utils.checkpoint.
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


Policy = Callable[..., CheckpointPolicy | bool]


class _Saved:
    """One saved result of an operator: its tensors, and how to make the result from them."""

    __slots__ = ("generator", "must", "rest", "tensors")

    def __init__(self, must: bool, generator: DeviceState | None, tensors: list[_Kept], rest: Any) -> None:
        self.must = must
        self.generator = generator
        self.tensors = tensors
        self.rest = rest  # None for a single tensor; else the leaves, with places for tensors, and their structure

    def result(self, op: Any) -> Any:
        if self.rest is None:
            return self.tensors[0].value(op)
        leaves, spec = self.rest
        found = iter([kept.value(op) for kept in self.tensors])
        return engine.unflatten([next(found) if leaf is _PLACE else leaf for leaf in leaves], spec)


_PLACE = object()


class _Kept:
    """One tensor of a saved result: itself with its version, or a copy, or what the user's hooks made of it."""

    __slots__ = ("kept", "restore", "version")

    def __init__(self, kept: Any, version: int | None, restore: Callable[[Any], Tensor] | None = None) -> None:
        self.kept = kept
        self.version = version
        self.restore = restore

    def value(self, op: Any) -> Tensor:
        kept = self.kept
        if self.version is not None and kept._version != self.version:
            raise SavedResultMutatedError(op)  # SEL-10
        return kept if self.restore is None else self.restore(kept)


def _offload(tensor: Tensor) -> _Kept:
    """A copy in CPU memory, pinned for CUDA: both copies are then queued behind the kernels, on one stream (SEL-16)."""
    device, cuda = tensor.device, tensor.is_cuda
    host = torch.empty_like(tensor, device="cpu", pin_memory=cuda).copy_(tensor, non_blocking=cuda)
    return _Kept(host, None, lambda kept: kept.to(device, non_blocking=cuda))


class _Line:
    """The book's line of one operator: what is known about it, and what became of each of its calls."""

    __slots__ = ("aliases", "answer", "calls", "entries", "ignored", "random")

    def __init__(self, op: Any, answer: CheckpointPolicy | None) -> None:
        self.answer = answer  # of a policy that only looks at the operator
        self.ignored = op in SAC_IGNORED_OPS
        self.aliases = engine.aliases_its_input(op)
        self.random = engine.is_random(op)
        self.entries: list[_Saved | Literal["recompute", "consumed"]] = []  # in order of the calls (SEL-21)
        self.calls = 0  # so far in the current replay


Book = dict[Any, _Line]


class SavingMode(engine.DispatchMode):
    """The forward's context of a selective region."""

    def __init__(self, policy: Policy | list[Any], book: Book, copies: bool) -> None:
        super().__init__()
        self.policy = policy
        self.book = book
        self.copies = copies
        self.hooks: Hooks | None = None
        self.used = False

    def __enter__(self) -> Any:
        if self.used:
            raise ContextReuseError  # SEL-15
        self.used = True
        return super().__enter__()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        line = self.book.get(func)
        if line is None:
            line = self.book[func] = _Line(func, self._known(func))
        if not line.ignored:
            policy = line.answer or self._ask(func, result, args, kwargs)
            if policy is _RECOMPUTE or policy is _MUST_RECOMPUTE or line.aliases:
                line.entries.append("recompute")
            else:
                line.entries.append(self._save(line, result, policy, kwargs))
        return result

    def _known(self, op: Any) -> CheckpointPolicy | None:
        if isinstance(self.policy, list):
            return _MUST_SAVE if op in self.policy else _RECOMPUTE  # SEL-04
        return None

    def _ask(self, op: Any, result: Any, args: Any, kwargs: Any) -> CheckpointPolicy:
        assert not isinstance(self.policy, list)
        answer = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=result), op, *args, **kwargs)
        if isinstance(answer, CheckpointPolicy):
            return answer
        if isinstance(answer, bool):  # SEL-05
            return _MUST_SAVE if answer else _RECOMPUTE
        raise UnknownPolicyError(op, answer)  # SEL-17

    def _save(self, line: _Line, result: Any, policy: CheckpointPolicy, kwargs: dict[str, Any]) -> _Saved:
        must = policy is _MUST_SAVE or policy is _MUST_OFFLOAD
        offload = policy is _OFFLOAD or policy is _MUST_OFFLOAD
        generator = None
        if line.random and kwargs.get("generator") is None:
            generator = next(filter(None, map(state_behind, tensors_in((result,)))), None)
        if isinstance(result, Tensor):
            return _Saved(must, generator, [self._keep(result, offload)], None)
        leaves, spec = engine.flatten(result)
        tensors = [self._keep(leaf, offload) for leaf in leaves if isinstance(leaf, Tensor)]
        return _Saved(must, generator, tensors, ([_PLACE if isinstance(x, Tensor) else x for x in leaves], spec))

    def _keep(self, tensor: Tensor, offload: bool) -> _Kept:
        if self.hooks is not None:
            pack, unpack = self.hooks
            return _Kept(pack(engine.detach_below_autograd(tensor)), None, unpack)
        if offload and not tensor.is_cpu:
            return _offload(tensor)
        if self.copies:
            return _Kept(tensor.clone(), None)
        return _Kept(engine.detach_below_autograd(tensor), tensor._version)


class ReusingMode(engine.DispatchMode):
    """The replay's context of a selective region; entered once a replay."""

    def __init__(self, book: Book) -> None:
        super().__init__()
        self.book = book
        self.generators: list[DeviceState] = []  # as they were before this replay moved them

    def __enter__(self) -> Any:
        for line in self.book.values():
            line.calls = 0
        return super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        while self.generators:  # the ambient state does the same, unless preserve_rng_state=False (SEL-27)
            self.generators.pop().swap()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = self.book.get(func)
        if func in SAC_IGNORED_OPS if line is None else line.ignored:
            return func(*args, **(kwargs or {}))
        index = 0 if line is None else line.calls
        if line is None or index >= len(line.entries):
            raise UnknownOperationError(func, index)  # SEL-20
        line.calls = index + 1
        entry = line.entries[index]
        if entry == "recompute":
            return func(*args, **(kwargs or {}))
        if entry == "consumed":
            raise SavedResultConsumedError(func)
        line.entries[index] = "consumed" if entry.must else "recompute"
        if entry.generator is not None:
            self.generators.append(entry.generator.swap())
        return entry.result(func)


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Policy | list[Any], allow_cache_entry_mutation: bool = False
) -> tuple[SavingMode, ReusingMode]:
    """A pair of contexts for one region; pass `functools.partial` of this function as `context_fn`.

    Args:
        policy_fn_or_list: `policy(ctx, op, *args, **kwargs)` returns a CheckpointPolicy, or a bool (True saves); called
            once an operator in the forward. Or a list of OpOverloads: these are MUST_SAVE, others PREFER_RECOMPUTE.
        allow_cache_entry_mutation: saved results may be modified in place afterwards. They are then copied when saved,
            which costs their size once more while the originals live; by default a change raises in the replay.

    Raises TypeError for another kind of policy, ValueError for a list with something else than an OpOverload; in use,
    UnknownPolicyError, ContextReuseError, SavedResultMutatedError, SavedResultConsumedError, UnknownOperationError.
    Source: torch.utils.checkpoint.create_selective_checkpoint_contexts.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            _check_op(op)
    elif not callable(policy := policy_fn_or_list):
        raise TypeError(f"policy_fn_or_list must be a function or a list of ops, but got {type(policy).__name__}.")
    book: Book = {}
    return SavingMode(policy_fn_or_list, book, copies=allow_cache_entry_mutation), ReusingMode(book)


def _check_op(op: Any) -> None:
    if not isinstance(op, engine.OpOverload | engine.HigherOrderOperator):  # SEL-06
        hint = f" Choose an overload, e.g. {op}.default." if isinstance(op, engine.OpOverloadPacket) else ""
        raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}.{hint}")


def choose_hooks(context: object, hooks: Hooks | None, respect: bool | None) -> None:
    """Apply `respect_saved_tensors_hooks`: whether saved results pass through the user's hooks (HOOK-05)."""
    if hooks is None or not isinstance(context, SavingMode):
        return
    if respect is None:
        warnings.warn(
            "saved-tensor hooks are in scope of a selective region: results that its policy saves bypass them, but "
            "will pass through them in a future version. Pass respect_saved_tensors_hooks=True or False.",
            FutureWarning,
            stacklevel=5,
        )
    elif respect:
        context.hooks = hooks
