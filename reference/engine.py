"""Everything private that this package asks of torch, each with its reason. Nothing else imports private names."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator as HigherOrderOperator
from torch._ops import OpOverload as OpOverload
from torch._ops import OpOverloadPacket as OpOverloadPacket
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode

T = TypeVar("T")

# ---- autograd

# Which backward is running: one replay per region and backward needs a name for the backward. -1 outside of one.
graph_task: Callable[[], int] = torch._C._current_graph_task_id
# Which operation is saving: grows with each graph node, so two values saved at one number belong to one operation.
sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
# `torch.enable_grad()` in a third of the time; the caller restores.
set_grad_enabled: Callable[[bool], None] = torch._C._set_grad_enabled
# False during backward(inputs=...) and autograd.grad, which the reentrant form cannot serve.
backward_takes_all_leaves: Callable[[], bool] = torch.autograd._is_checkpoint_valid


def backward(outputs: tuple[Tensor, ...], grads: tuple[Tensor, ...]) -> None:
    """torch.autograd.backward for gradients that autograd made: the public one checks their shapes again, for 8 us."""
    run = torch.autograd.graph._engine_run_backward
    run(outputs, grads, False, False, (), allow_unreachable=True, accumulate_grad=True)


def at_end_of_backward(callback: Callable[[], None]) -> None:
    """Call `callback` when the running backward is done; if it fails, drop it. No public hook ends a backward."""
    torch.autograd.Variable._execution_engine.queue_callback(callback)


def active_hooks() -> tuple[Callable[..., Any], Callable[..., Any]] | None:
    """The innermost saved-tensor hooks: whoever owns what is saved now. They can be pushed publicly, but not seen."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return hooks[:2] if hooks else None


if hasattr(torch._C._autograd, "_make_saved_tensor"):  # torch >= 2.12

    def save_through_hooks(tensor: Tensor) -> Callable[[], Tensor]:
        """Save `tensor` as a graph node would, so that the active hooks own it. Returns how to get it back."""
        unpack: Callable[[], Tensor] = torch._C._autograd._make_saved_tensor(tensor, is_output=False).unpack
        return unpack

else:

    class _Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, dummy: Tensor, tensor: Tensor) -> Tensor:
            ctx.save_for_backward(tensor)
            return dummy.view_as(dummy)

    def save_through_hooks(tensor: Tensor) -> Callable[[], Tensor]:
        """The same through a graph node of its own: torch 2.11 has no saved tensor without a node."""
        kept = _Keep.apply(torch.empty((), requires_grad=True), tensor)  # type: ignore[no-untyped-call]
        return lambda: kept.grad_fn.saved_tensors[0]  # the tensor keeps its node alive


class HookCounts:
    """How many hooks on their gradients some tensors had."""

    __slots__ = ("before",)

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self.before = [(t, _counts(t)) for t in tensors if t.requires_grad]

    def grown(self) -> list[Tensor]:
        """The tensors that have more of them now."""
        return [t for t, counts in self.before if _counts(t) != counts]


class hooks_kept(HookCounts):
    """Afterwards, `tensors` have the gradient hooks that they had before: those that a region registers on what it
    reads would act twice if both the forward's and the replay's stayed. Public handles only remove their own.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        for tensor, counts in self.before:
            for hooks, count in zip(_hooks(tensor), counts, strict=True):
                while len(hooks) > count:
                    hooks.popitem()


def _hooks(tensor: Tensor) -> tuple[dict[int, Any], dict[int, Any]]:
    """The hooks on a tensor's gradient, and those that follow its accumulation."""
    return tensor._backward_hooks or {}, tensor._post_accumulate_grad_hooks or {}


def _counts(tensor: Tensor) -> list[int]:
    return [len(hooks) for hooks in _hooks(tensor)]


# The running group: autograd hands this thread-local to its device threads, a Python one would be lost there.
current_group: Callable[[], Any] = torch._C._get_graph_exec_group
set_current_group: Callable[[Any], None] = torch._C._set_graph_exec_group


def detach_below_autograd(tensor: Tensor) -> Tensor:
    """`tensor.detach()` that shares the version counter even below autograd, where a dispatch mode runs.

    The kernel that shares it is skipped there unless its dispatch key is let in.
    """
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
        return tensor.detach()


def detach_past_modes(tensor: Tensor) -> Tensor:
    """`tensor.detach()` that dispatch modes do not see, in a third of the time."""
    if type(tensor) is not Tensor:  # a subclass may dispatch to itself
        return tensor.detach()
    with torch._C._DisableTorchDispatch():
        return tensor.detach()


# ---- modes


class DispatchMode(TorchDispatchMode):
    """A dispatch mode without the wrapper that torch puts around each, a guard against the compiler that takes 0.5 us a
    call: regions run outside of the compiler. The rest only adds the types that torch leaves out.
    """

    def __init_subclass__(cls) -> None:
        pass  # the parent's makes the wrapper

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __enter__(self) -> Any:
        return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)  # type: ignore[no-untyped-call]


function_modes: Callable[[], int] = torch._C._len_torch_function_stack
_mode_at: Callable[[int], Any] = torch._C._get_function_stack_at
_pop: Callable[[], Any] = torch._C._pop_torch_function_stack
_push: Callable[[Any], None] = torch._C._push_on_torch_function_stack
any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled


def default_device() -> torch.device | None:
    """The device of `with torch.device(...)` or set_default_device; torch.get_default_device makes a tensor to tell."""
    for i in reversed(range(function_modes())):
        if isinstance(mode := _mode_at(i), DeviceContext):
            device: torch.device = mode.device
            return device
    return None


def push_below(mode: TorchFunctionMode) -> None:
    """Install `mode` below those of the region, whose own exits pop from the top. A device context stays the lowest."""
    above = [_pop() for _ in range(function_modes())]
    if above and isinstance(above[-1], DeviceContext):
        _push(above.pop())
    _push(mode)
    while above:
        _push(above.pop())


def remove(mode: TorchFunctionMode) -> None:
    """Take `mode` out, wherever it is in the stack by now."""
    above = []
    while (top := _pop()) is not mode:
        above.append(top)
    while above:
        _push(above.pop())


def inside_kernel() -> bool:
    """Whether an operation is being executed below autograd, by a dispatch mode or a kernel written in Python."""
    excluded: bool = torch._C._dispatch_tls_is_dispatch_key_excluded(torch._C.DispatchKey.AutogradFunctionality)
    return excluded


def inside_vmap() -> bool:
    """Whether torch.func.vmap surrounds this call; saved-tensor hooks refuse the other transforms by themselves."""
    functorch = torch._C._functorch
    if functorch.peek_interpreter_stack() is None:
        return False
    return any(level.key() == functorch.TransformType.Vmap for level in functorch.get_interpreter_stack())


# ---- compiler


def _call(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    return function(*args, **kwargs)


# Calls a function where torch.compile neither traces nor compiles. Lazy, unlike torch.compiler.disable, which imports
# the compiler; the wrapper knows no user function, so it makes no cycle with one (pytorch/pytorch#154642).
uncompiled: Callable[..., Any] = torch._compile._disable_dynamo(_call)


# ---- structures and operators

flatten = pytree.tree_flatten  # pytrees are the only list of what counts as a container in torch
unflatten = pytree.tree_unflatten


@functools.cache  # operators are few and live as long as the process
def aliases_its_input(op: Any) -> bool:
    """Whether the operator returns a view of an argument or writes into one; only the private schema tells."""
    return getattr(op, "is_view", False) or (hasattr(op, "_schema") and op._schema.is_mutable)


@functools.cache
def is_random(op: Any) -> bool:
    """Whether the operator draws from a generator; the tag is public, and slow to read."""
    return torch.Tag.nondeterministic_seeded in getattr(op, "tags", ())


# Operators that only look at metadata; with tensor subclasses they reach dispatch modes.
METADATA_OPS: frozenset[Any] = frozenset(torch._subclasses.functional_tensor.FunctionalTensor.metadata_fns)


def has_context(kind: str, index: int) -> bool:
    """Whether this process uses the device; without a context nothing can have been drawn on it."""
    module: Any = torch._C  # a build without CUDA lacks the function
    return kind != "cuda" or bool(module._cuda_hasPrimaryContext(index))
