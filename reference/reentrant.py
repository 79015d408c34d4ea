"""The reentrant form: the forward records nothing; backward runs the function again, and a backward inside of it.

Its graph node stands for the whole region, hence its limits: no torch.autograd.grad, no create_graph, tensors only as
positional arguments and flat results, hooks of parameters once a region. What the function captures is seen as far as
it shows without running it (`captured_by`): a change of other tensors before backward is not detected, as it is by the
non-reentrant form.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from ckptspec.reference import engine
from ckptspec.reference.ambient import Ambient
from ckptspec.reference.arguments import Versions, captured_by, tensors_in
from ckptspec.reference.errors import (
    ReentrantCreateGraphError,
    ReentrantInputsError,
    ReentrantNoGradientError,
    ReentrantOutputError,
)
from ckptspec.reference.settings import Options


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """Leaves with the values of `inputs` that need gradients where these do; other objects as they are.

    Raises RuntimeError for anything but a tuple. Source: torch.utils.checkpoint.detach_variable.
    """
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn if no tensor among `inputs` needs a gradient (GRAD-05). Source: torch.utils.checkpoint."""
    if not any(x.requires_grad for x in inputs if isinstance(x, Tensor)):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(torch.autograd.Function):
    """The graph node of a region: `CheckpointFunction.apply(function, preserve_rng_state, *args)`.

    Raises ReentrantOutputError in the forward, the other Reentrant…Errors in backward. Source: torch.utils.checkpoint.
    """

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool | str, *args: Any) -> Any:
        check_backward_validity(args)
        tensors = tensors_in(args)
        ctx.run_function = run_function
        ctx.ambient = Ambient(preserve_rng_state, tensors)
        # Positional tensors belong to the graph, which compares their versions between forward and backward; it does
        # not see nested ones, nor changes that the function itself makes (MUT-01, MUT-02).
        ctx.args = [None if isinstance(x, Tensor) else x for x in args]
        ctx.positions = [i for i, x in enumerate(args) if isinstance(x, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.positions))
        nested = tensors_in(ctx.args)
        ctx.nested = Versions(nested)
        captured = captured_by(run_function, modules=True)
        before, hooks = Versions(tensors), engine.HookCounts([*tensors, *captured])
        with torch.no_grad():
            outputs = run_function(*args)  # REENT-01
        ctx.ambient.check_use()
        ctx.own_change = before.error()
        ctx.captured = Versions(t for t in captured if t.is_floating_point() or t.is_complex())  # MUT-04
        hooked = set(map(id, hooks.grown()))  # HOOK-07: on these, the replay's hooks would be second ones
        ctx.hooked_positions = [i for i in ctx.positions if id(args[i]) in hooked]
        ctx.hooked = [t for t in (*nested, *captured) if id(t) in hooked]
        _refuse_nested(outputs)
        return tuple(map(_own, outputs)) if isinstance(outputs, tuple) else _own(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if torch.compiler.is_compiling():
            return engine.uncompiled(CheckpointFunction._backward, ctx, grads)
        return CheckpointFunction._backward(ctx, grads)

    @staticmethod
    def _backward(ctx: Any, grads: tuple[Any, ...]) -> tuple[Any, ...]:
        if not engine.backward_takes_all_leaves():
            raise ReentrantInputsError  # REENT-02
        if torch.is_grad_enabled():
            raise ReentrantCreateGraphError  # HO-02, LB-06
        args = list(ctx.args)
        for position, tensor in zip(ctx.positions, ctx.saved_tensors, strict=True):
            args[position] = tensor
        if error := ctx.own_change or ctx.nested.error() or ctx.captured.error():
            raise error
        inputs = detach_variable(tuple(args))
        hooked = [*ctx.hooked, *(inputs[i] for i in ctx.hooked_positions)]
        with ctx.ambient.restored(), engine.hooks_kept(hooked):
            outputs = ctx.run_function(*inputs)
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = zip(outputs, grads, strict=True)
        needed = [(output, grad) for output, grad in pairs if isinstance(output, Tensor) and output.requires_grad]
        if needed:
            engine.backward(*zip(*needed, strict=True))
        elif getattr(ctx.run_function, "func", None) is not _anchored:
            raise ReentrantNoGradientError  # REENT-06
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in inputs))


def _refuse_nested(outputs: Any) -> None:
    """Tensors in containers would come out detached (IO-06, LB-07)."""
    for output in outputs if isinstance(outputs, tuple) else (outputs,):
        nested = [] if isinstance(output, Tensor) else tensors_in((output,))
        if any(t.is_floating_point() or t.is_complex() for t in nested):
            raise ReentrantOutputError(type(output).__name__)


def _own(output: Any) -> Any:
    """Autograd makes the node's outputs, these very tensors, results of the node; one that the function captured must
    not be that (REENT-11).
    """
    return output.detach() if isinstance(output, Tensor) else output


_apply: Callable[..., Any] = CheckpointFunction.apply


def _anchored(function: Callable[..., Any], anchor: Tensor, *args: Any) -> Any:
    """`function` with one tensor more, which needs a gradient, so that the region gets a graph node."""
    return function(*args)


def call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Any:
    """Run a region's forward and return what `function` returns.

    If no input needs a gradient, warns as torch does; but tensors that the function captures do get theirs (GRAD-05).
    """
    if any(x.requires_grad for x in args if isinstance(x, Tensor)):
        return _apply(function, options.preserve_rng_state, *args)
    check_backward_validity(args)
    anchor = torch.empty(0, requires_grad=True, device="cpu")
    return _apply(functools.partial(_anchored, function), options.preserve_rng_state, anchor, *args)
