"""What people do, and must go on working: the checks of mutation and determinism see no fault in it."""

# ruff: noqa: E731 (regions are short; as lambdas they stand beside their use)

from __future__ import annotations

import functools

import pytest
import torch

import ckptspec.reference as reference

run = functools.partial(reference.checkpoint, use_reentrant=False)
plain = lambda f, *args: f(*args)


def train(call, layer, steps=3):
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        for _ in range(2):  # accumulation
            call(layer, torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().clone() for p in layer.parameters()]


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.filterwarnings("ignore:None of the inputs")
def test_batch_norm_dropout_and_optimizer(reentrant):
    def model():
        torch.manual_seed(1)
        relu, drop = torch.nn.ReLU(inplace=True), torch.nn.Dropout(0.2)
        return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), relu, drop, torch.nn.Linear(8, 2))

    expected = train(plain, model())
    got = train(functools.partial(reference.checkpoint, use_reentrant=reentrant), model())
    assert all(map(torch.equal, expected, got))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("before", [True, False])
def test_autocast(reentrant, cache, before):
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8, requires_grad=True)
    grads = []
    for call in (plain, functools.partial(reference.checkpoint, use_reentrant=reentrant)):
        seen = []

        def region(x, seen=seen):
            seen.append(layer(x).dtype)
            return layer(x).sin()

        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):
            if before:
                layer(x)
            out = call(region, x)
        x.grad = layer.weight.grad = None
        out.sum().backward()
        grads.append((x.grad, layer.weight.grad))
        assert set(seen) == {torch.bfloat16}
        out = call(region, x)
        seen.clear()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out.sum().backward()
        assert set(seen) <= {torch.float32}
    assert all(map(torch.equal, *grads))


def test_an_argument_changed_where_no_value_depends_on_it():
    x, s = torch.ones(2, requires_grad=True), torch.ones(2)
    out = run(lambda x, s: x + s, x, s)
    s.mul_(2)
    out.sum().backward()  # nothing was saved: no replay
    assert torch.equal(x.grad, torch.ones(2))


def test_the_result_changed_in_place():
    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    for z, call in ((x, plain), (y, run)):
        call(lambda x: x.sin() * 2, z).mul_(3).sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_in_place_operations_inside():
    def region(x):
        y = torch.empty_like(x)
        y.copy_(x.sin())
        y[0].mul_(2)
        return y.mul_(3).tanh_()

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    plain(region, x).sum().backward()
    run(region, y).sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_mutation_allowed_by_torchs_own_context():
    for call in (plain, run):
        x = torch.full((2,), 0.5, requires_grad=True)
        with torch.autograd.graph.allow_mutation_on_saved_tensors():
            h = x * 1.0
            out = call(lambda h: h.sin().exp(), h)
            h.detach().mul_(3)
            out.sum().backward()
        assert torch.allclose(x.grad, torch.full((2,), 0.5).sin().exp() * torch.full((2,), 0.5).cos())


def test_an_argument_given_twice_to_an_inner_region_is_recomputed_once():
    calls = []

    def outer(x):
        h = x.sin()
        calls.append(None)
        return run(lambda a, b: (a * b).exp(), h, h).cos()

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    run(outer, x).sum().backward()
    assert len(calls) == 2
    h = y.sin()
    (h * h).exp().cos().sum().backward()
    assert torch.allclose(x.grad, y.grad)


def test_a_flag_that_makes_kernels_fill_memory():
    x = torch.ones(2, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        out = run(lambda x: (torch.empty(2).fill_(3.0) * x).sin(), x)
    finally:
        torch.use_deterministic_algorithms(False)
    out.sum().backward()  # the replay's tensor was changed once less, and is the same


def test_a_captured_intermediate_that_the_region_changes_is_no_silent_error():
    x = torch.ones(2, requires_grad=True)
    h = x.sin()
    out = run(lambda x: h.mul_(x), x)
    with pytest.raises(reference.CheckpointError, match="inplace"):
        out.sum().backward()
