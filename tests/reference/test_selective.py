"""Selective policies: what is executed again, how often, and what misuse says."""

# ruff: noqa: E731 (regions are short; as lambdas they stand beside their use)

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ckptspec.reference as reference
from ckptspec.reference import CheckpointPolicy, GraphExecGroup, checkpoint
from ckptspec.reference.errors import (
    ContextReuseError,
    SavedResultConsumedError,
    SavedResultMutatedError,
    UnknownOperationError,
)

aten = torch.ops.aten
run = functools.partial(checkpoint, use_reentrant=False)
sac = lambda policy, **options: functools.partial(reference.create_selective_checkpoint_contexts, policy, **options)


class Count(TorchDispatchMode):
    def __init__(self, op):
        super().__init__()
        self.op, self.n = op, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += func is self.op
        return func(*args, **(kwargs or {}))


def leaf(n=3):
    return torch.linspace(0.1, 1.0, n * n).reshape(n, n).requires_grad_()


def region(x):
    return ((x @ x).sin() @ x).cos().exp()


def gradient(call, function=region):
    torch.manual_seed(0)
    x = leaf()
    call(function, x).sum().backward()
    return x.grad


expected = gradient(lambda f, x: f(x))


@pytest.mark.parametrize(("first", "second"), list(itertools.product(["SAVE", "RECOMPUTE", "CPU_OFFLOAD"], repeat=2)))
def test_any_policy_gives_the_same_gradient(first, second):
    """Two matrix products, told apart by the order of calls; the policy is asked once an op, in the forward only."""
    seen = []

    def policy(ctx, op, *args, **kwargs):
        assert not ctx.is_recompute
        seen.append((op, ctx.op_output is not None))
        products = sum(o is aten.mm.default for o, _ in seen)
        return CheckpointPolicy["PREFER_" + (first if products < 2 else second)]

    assert torch.equal(gradient(functools.partial(run, context_fn=sac(policy))), expected)
    assert [op for op, given in seen if given and op is aten.mm.default] == [aten.mm.default] * 2
    assert len(seen) == 5


@pytest.mark.parametrize(("policy", "replays"), [("MUST_SAVE", 0), ("PREFER_SAVE", 0), ("MUST_RECOMPUTE", 2)])
def test_a_saved_op_runs_once(policy, replays):
    out = run(region, leaf(), context_fn=sac(lambda ctx, op, *a, **k: CheckpointPolicy[policy])).sum()
    with Count(aten.mm.default) as count:
        out.backward()
    assert count.n - 4 == replays  # four products are of the backward itself


def test_a_second_backward_recomputes_what_was_preferred_and_raises_for_what_must_be_saved():
    x = leaf()
    out = run(region, x, context_fn=sac(lambda ctx, op, *a, **k: CheckpointPolicy.PREFER_SAVE)).sum()
    out.backward(retain_graph=True)
    out.backward()
    assert torch.equal(x.grad, 2 * expected)
    out = run(region, leaf(), context_fn=sac([aten.mm.default])).sum()
    out.backward(retain_graph=True)
    with pytest.raises(SavedResultConsumedError, match=r"aten\.mm.*extra time|extra time.*aten\.mm"):
        out.backward()


def test_a_second_backward_draws_the_same_numbers():
    def random(x):
        y = torch.nn.functional.dropout(x, 0.5)
        return torch.nn.functional.dropout(y.sin(), 0.5).exp()

    x = leaf(10)
    dropout = aten.native_dropout.default
    prefer = lambda ctx, op, *a, **k: CheckpointPolicy.PREFER_SAVE if op is dropout else False
    out = run(random, x, context_fn=sac(prefer)).sum()
    grads = [torch.autograd.grad(out, x, retain_graph=True)[0] for _ in range(3)]
    assert torch.equal(grads[0], grads[1])
    assert torch.equal(grads[0], grads[2])


def test_disjoint_backwards_under_one_group():
    x = leaf()
    a, b = run(lambda x: ((x @ x).sin().exp(), (x @ x).cos().exp()), x, context_fn=sac([aten.mm.default]))
    with GraphExecGroup():
        (ga,) = torch.autograd.grad(a.sum(), x, retain_graph=True)
        (gb,) = torch.autograd.grad(b.sum(), x)
    y = leaf()
    ((y @ y).sin().exp().sum() + (y @ y).cos().exp().sum()).backward()
    assert torch.allclose(ga + gb, y.grad)


def test_a_pair_serves_one_region():
    pair = reference.create_selective_checkpoint_contexts([aten.mm.default])
    run(region, leaf(), context_fn=lambda: pair).sum().backward()
    with pytest.raises(ContextReuseError, match=r"functools\.partial"):
        run(region, leaf(), context_fn=lambda: pair)


def test_another_path_in_the_replay_is_named():
    path = [torch.sin]
    out = run(lambda x: path[0](x).exp(), leaf(), context_fn=sac([aten.mm.default]), early_stop=False)
    path[0] = torch.tanh
    with pytest.raises(UnknownOperationError, match="not found in storage"):
        out.sum().backward()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_changed_result(allowed):
    change = lambda x: (x @ x).mul_(2).cos().exp()
    out_of = functools.partial(run, context_fn=sac([aten.mm.default], allow_cache_entry_mutation=allowed))
    if allowed:
        assert torch.equal(gradient(out_of, change), gradient(lambda f, x: f(x), change))
    else:
        with pytest.raises(SavedResultMutatedError, match="has been mutated"):
            gradient(out_of, change)


def test_several_outputs_and_in_place_ops():
    def several(x):
        top, index = x.topk(2)
        y = torch.cat([top, index.to(x.dtype)]).relu_().sigmoid()
        return torch.std_mean(y)[0] * top.sin().sum() * float(index.sum().item() >= 0)

    many = [aten.topk, aten.relu_, aten.sigmoid, aten._local_scalar_dense]
    for ops in ([aten.topk.default], [*(packet.default for packet in many), aten.std_mean.correction]):
        got = gradient(functools.partial(run, context_fn=sac(ops)), several)
        assert torch.equal(got, gradient(lambda f, x: f(x), several))


@pytest.mark.parametrize("pattern", ["sac in plain", "plain in sac", "sac in sac"])
def test_nested(pattern):
    selective = functools.partial(run, context_fn=sac([aten.mm.default]))
    outer = run if pattern == "sac in plain" else selective
    inner = run if pattern == "plain in sac" else selective
    body = lambda call: lambda x: call(lambda y: (y @ y).sin(), x @ x).cos()
    assert torch.equal(gradient(outer, body(inner)), gradient(lambda f, x: f(x), body(lambda f, x: f(x))))


@pytest.mark.parametrize(
    ("policy", "error"),
    [({aten.mm.default}, TypeError), (("mm",), TypeError), ([aten.mm], ValueError), ([torch.mm], ValueError)],
)
def test_bad_policies(policy, error):
    with pytest.raises(error):
        reference.create_selective_checkpoint_contexts(policy)


def test_an_error_of_the_policy_leaves_no_mode():
    def policy(ctx, op, *args, **kwargs):
        raise KeyError(op)

    with pytest.raises(KeyError):
        run(region, leaf(), context_fn=sac(policy))
    assert torch.equal(gradient(run), expected)


def test_profiler_operators_are_not_counted():
    def profiled(x):
        with torch.profiler.record_function("part"):
            return region(x)

    seen = []
    call = functools.partial(run, context_fn=sac(lambda ctx, op, *a, **k: bool(seen.append(str(op)))))
    assert torch.equal(gradient(call, profiled), expected)
    assert not [op for op in seen if op.startswith("profiler")]
