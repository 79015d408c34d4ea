"""Regions in regions, backward inside a region, higher orders: against the plain program."""

# ruff: noqa: E731 (regions are short; as lambdas they stand beside their use)

from __future__ import annotations

import functools
import itertools
import threading

import pytest
import torch

import ckptspec.reference as reference
from ckptspec.reference import GraphExecGroup, checkpoint
from ckptspec.reference.errors import CheckpointError, GroupNestingError, GroupOverlapError

run = functools.partial(checkpoint, use_reentrant=False)


def leaf(n=3):
    return torch.linspace(0.1, 1.0, n, dtype=torch.float64).requires_grad_()


def f(x):
    return (x.sin() * x).exp().cos()


def grad_inside(x, retain):
    y = f(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True, retain_graph=True if retain else None)
    return y * g.sin()


def grad_inside_free(x):
    y = x.sin()
    z = y.cos()
    (g,) = torch.autograd.grad(z.sum(), x)
    return x.cos() * g


WRAPS = {
    "c": lambda c, f: lambda x: c(f, x),
    "c c": lambda c, f: lambda x: c(lambda x: c(f, x), x),
    "c 2c c": lambda c, f: lambda x: c(lambda x: c(f, x) + c(f, x.sin()), x).cos(),
    "g c": lambda c, f: lambda x: torch.autograd.grad(c(f, x).sum(), x, create_graph=True)[0],
    "g c c": lambda c, f: lambda x: torch.autograd.grad(c(lambda x: c(f, x) * x, x).sum(), x, create_graph=True)[0],
    "c g c": lambda c, f: lambda x: c(lambda x: torch.autograd.grad(c(f, x).sum(), x, create_graph=True)[0].sin(), x),
    "g g c": lambda c, f: lambda x: torch.autograd.grad(torch.autograd.grad(
        c(f, x).sum(), x, create_graph=True)[0].sum(), x, create_graph=True)[0],
}  # fmt: skip


@pytest.mark.parametrize("early_stop", [True, False])
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize(
    "inner", [f, functools.partial(grad_inside, retain=True), functools.partial(grad_inside, retain=False)]
)
def test_equal_to_the_plain_program(wrap, inner, early_stop):
    results = []
    for call in (lambda f, x: f(x), functools.partial(run, early_stop=early_stop)):
        x = leaf()
        out = WRAPS[wrap](call, inner)(x)
        (grad,) = torch.autograd.grad(out.sum(), x)
        results.append((out.detach(), grad))
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_freeing_backward_inside(early_stop):
    x, y = leaf(), leaf()
    grad_inside_free(x).sum().backward()
    run(grad_inside_free, y, early_stop=early_stop).sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_gradcheck():
    assert torch.autograd.gradcheck(lambda x: run(f, x), leaf())
    assert torch.autograd.gradgradcheck(lambda x: run(f, x), leaf())


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product([True, False], repeat=2)))
def test_mixed_forms_with_random_numbers(outer, inner):
    drop = lambda x: torch.nn.functional.dropout(x, 0.5)
    body = lambda call: lambda x: drop(call(lambda y: drop(y.sin()).exp(), drop(x) * x)).cos()
    grads = []
    for call_outer, call_inner in (
        (lambda f, x: f(x), lambda f, x: f(x)),
        (functools.partial(checkpoint, use_reentrant=outer), functools.partial(checkpoint, use_reentrant=inner)),
    ):
        torch.manual_seed(3)
        x = leaf(20)
        out = call_outer(body(call_inner), x)
        torch.rand(5)
        out.sum().backward()
        grads.append(x.grad)
    assert torch.equal(*grads)


def test_a_hook_runs_backward_on_another_part_of_the_region():
    def program(call):
        x = leaf()

        def region(x):
            a, b = x.sin().exp(), x.cos().exp()
            return a * 1.0, b * 1.0

        a, b = call(region, x)
        inside = []
        a.register_hook(lambda g: inside.extend(torch.autograd.grad(b, x, torch.ones_like(b), retain_graph=True)))
        a.sum().backward()
        return x.grad, inside[0]

    assert all(map(torch.equal, program(lambda f, x: f(x)), program(run)))


def test_saved_values_read_twice_or_outside():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return g * (ctx.saved_tensors[0] + ctx.saved_tensors[0])

    calls = []
    x, y = leaf(), leaf()
    run(lambda x: (calls.append(0), Twice.apply(x.sin()))[1], x).sum().backward()
    Twice.apply(y.sin()).sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert len(calls) == 3
    out = run(lambda x: (calls.append(0), x.sin().exp())[1], leaf())
    for n in (5, 6):
        assert torch.equal(out.grad_fn._saved_result, out)
        assert len(calls) == n
    out.sum().backward()
    with pytest.raises(RuntimeError, match="already been freed"):
        out.grad_fn._saved_result  # noqa: B018


def test_threads_share_one_graph():
    x, y = leaf(50), leaf(50)
    out = run(lambda x: f(f(x)), x).sum()
    (expected,) = torch.autograd.grad(f(f(y)).sum(), y)
    same = []

    def work():
        for _ in range(30):
            (got,) = torch.autograd.grad(out, x, retain_graph=True)
            same.append(torch.equal(got, expected))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert same == [True] * 120


def test_groups():
    calls = []

    def region(x):
        calls.append(0)
        return x.sin().exp() * 1.0, x.cos().exp() * 1.0

    x = leaf()
    a, b = run(region, x)
    group = GraphExecGroup()
    with group, pytest.raises(GroupNestingError, match="nested"):
        GraphExecGroup().__enter__()
    with group:
        ga = torch.autograd.grad(a.sum(), x, retain_graph=True)[0]
    with group:
        gb = torch.autograd.grad(b.sum(), x, retain_graph=True)[0]
        assert len(calls) == 2
        with pytest.raises(GroupOverlapError, match="overlap"):
            torch.autograd.grad(b.sum(), x, retain_graph=True)
    assert torch.equal(ga, torch.autograd.grad(a.sum(), x, retain_graph=True)[0])
    assert torch.equal(gb, torch.autograd.grad(b.sum(), x)[0])
    assert len(calls) == 4


@pytest.mark.parametrize("always", [True, False])
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_gradient_hook_on_an_argument_acts_once(reentrant, always):
    def region(x):
        if x.requires_grad and (always or torch.is_grad_enabled()):
            x.register_hook(lambda g: g * 2)
        return x.sin().exp()

    grads = []
    for call in (lambda f, x: f(x), functools.partial(checkpoint, use_reentrant=reentrant)):
        for nested in (False, True):
            x = leaf()
            out = call(lambda x, call=call: call(region, x * 1.5), x) if nested else call(region, x)
            out.sum().backward()
            grads.append(x.grad)
    assert torch.equal(grads[0], grads[2])
    assert torch.equal(grads[1], grads[3])


def test_an_error_of_the_surrounding_replay_names_its_cause():
    s = torch.ones(3, dtype=torch.float64)
    x = leaf()
    out = run(lambda x, s: run(torch.exp, (x * s).sin()), x, s)
    s.mul_(2)
    with pytest.raises(CheckpointError, match="version"):
        out.sum().backward()


def test_no_grad_is_a_plain_call():
    calls = []
    with torch.no_grad():
        out = run(lambda x: (calls.append(0), x * 2)[1], leaf(), context_fn=lambda: calls.append(1))
    assert calls == [0]
    assert not out.requires_grad
    assert reference.checkpoint_sequential([torch.sin, torch.cos], 2, leaf(), use_reentrant=False).requires_grad
