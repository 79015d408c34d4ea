"""torch.compile around a region, and inside one. Slow: each test compiles."""

from __future__ import annotations

import functools

import pytest
import torch

import ckptspec.reference as reference

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
]
compiled = functools.partial(torch.compile, backend="aot_eager")


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def gradient(program):
    torch.manual_seed(0)
    x = torch.linspace(0, 1, 8, requires_grad=True)
    out = program(x)
    torch.rand(3)
    out.sum().backward()
    return out.detach(), x.grad


def region(x):
    return (torch.nn.functional.dropout(x.sin(), 0.5) * x).exp()


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_compiled_caller(reentrant):
    def program(x, call):
        return call(region, x * 2).cos()

    call = functools.partial(reference.checkpoint, use_reentrant=reentrant)
    got = gradient(compiled(lambda x: program(x, call)))
    assert all(map(torch.equal, got, gradient(lambda x: program(x, lambda f, x: f(x)))))


def test_a_compiled_caller_of_the_decorated_form():
    decorated = reference.checkpoint(use_reentrant=False)(region)
    got = gradient(compiled(lambda x: decorated(x * 2).cos()))
    assert all(map(torch.equal, got, gradient(lambda x: region(x * 2).cos())))


def test_a_compiled_step_with_its_backward():
    calls = []

    def body(x):
        calls.append(torch.compiler.is_compiling())
        return x.sin().exp()

    @compiled
    def step(x):
        out = reference.checkpoint(body, x * 2, use_reentrant=False).cos().sum()
        out.backward()
        return out.detach()

    x, y = torch.ones(4, requires_grad=True), torch.ones(4, requires_grad=True)
    step(x)
    (y * 2).sin().exp().cos().sum().backward()
    assert torch.equal(x.grad, y.grad)
    assert calls == [False, False]


def test_a_compiled_function_inside():
    inner = compiled(lambda x: (x.sin() * x).exp())
    run = functools.partial(reference.checkpoint, use_reentrant=False)
    got = gradient(lambda x: run(lambda x: inner(x * 2).cos(), x))
    plain = gradient(lambda x: ((x * 2).sin() * (x * 2)).exp().cos())
    assert all(map(torch.allclose, got, plain))


def test_a_compiled_function_inside_a_selective_region():
    inner = compiled(lambda x: (x.sin() * x).exp())
    context_fn = functools.partial(reference.create_selective_checkpoint_contexts, [torch.ops.aten.sin.default])
    run = functools.partial(reference.checkpoint, use_reentrant=False, context_fn=context_fn)
    got = gradient(lambda x: run(lambda x: inner(x * 2).cos(), x))
    plain = gradient(lambda x: ((x * 2).sin() * (x * 2)).exp().cos())
    assert all(map(torch.allclose, got, plain))


def test_no_function_is_kept_alive():
    import gc
    import weakref

    class Token:
        pass

    def make():
        token = Token()
        there.append(weakref.ref(token))
        return lambda x: (x.sin().exp(), token)[0]

    there = []
    program = compiled(lambda x: reference.checkpoint(holder[0], x, use_reentrant=False))
    holder = [make()]
    program(torch.ones(3, requires_grad=True)).sum().backward()
    holder.clear()
    gc.collect()
    torch._dynamo.reset()
    assert there[0]() is None
