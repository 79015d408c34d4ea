"""Many regions: side by side, in a chain, in each other."""

from __future__ import annotations

import functools

import pytest
import torch

import ckptspec.reference as reference

run = functools.partial(reference.checkpoint, use_reentrant=False)


@pytest.mark.parametrize("reentrant", [True, False])
def test_3000_side_by_side(reentrant):
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)
    parts = [reference.checkpoint(torch.sin, x, use_reentrant=reentrant) for _ in range(3000)]
    torch.stack(parts).sum().backward()
    assert torch.allclose(x.grad, 3000 * x.detach().cos())


@pytest.mark.parametrize("reentrant", [True, False])
def test_3000_in_a_chain(reentrant):
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(3000):
        y = reference.checkpoint(lambda x: (x * 1.0).sin() + x, y, use_reentrant=reentrant) * 0.5
    y.sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("work", [False, True])
def test_200_in_each_other(work):
    counts = {"inner": 0}

    def level(depth, x):
        if depth == 0:
            counts["inner"] += 1
            return x.sin()
        y = reference.checkpoint(lambda x: level(depth - 1, x), x, use_reentrant=False)
        return y.cos() if work else y

    x = torch.ones(2, requires_grad=True)
    level(200, x).sum().backward()
    y = torch.ones(2, requires_grad=True)
    z = y.sin()
    for _ in range(200 if work else 0):
        z = z.cos()
    z.sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert counts["inner"] <= 201


def test_executions_grow_linearly():
    counts = {}
    for n in (10, 100):
        calls = []

        def region(x, calls=calls):
            calls.append(None)
            return x.sin().exp().cos()

        y = x = torch.ones(2, requires_grad=True)
        for _ in range(n):
            y = run(region, y)
        y.sum().backward()
        assert x.grad is not None
        counts[n] = len(calls)
    assert counts == {10: 20, 100: 200}


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_function_that_holds_itself(reentrant):
    def again(x, depth=3):
        return x.sin() if depth == 0 else again(x, depth - 1)

    x = torch.ones(2, requires_grad=True)
    reference.checkpoint(again, x, use_reentrant=reentrant).sum().backward()
    assert torch.equal(x.grad, torch.ones(2).cos())
