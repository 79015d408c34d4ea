"""Who keeps what alive: the rules at the top of frame.py, without the garbage collector's help."""

from __future__ import annotations

import functools
import gc
import weakref

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import ckptspec.reference as reference
from ckptspec.reference.frame import Frame, Replay, Slot
from ckptspec.reference.selective import _Saved

run = functools.partial(reference.checkpoint, use_reentrant=False)
aten = torch.ops.aten


@pytest.fixture(autouse=True)
def _without_gc():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Made:
    """Storages that a region made, on each execution."""

    def __init__(self):
        self.refs = []

    def __call__(self, tensor):
        self.refs.append(StorageWeakRef(tensor.untyped_storage()))
        return tensor

    @property
    def alive(self):
        return sum(not ref.expired() for ref in self.refs)


def leaf():
    return torch.full((100,), 0.5, requires_grad=True)


def ours_alive():
    return [o for o in gc.get_objects() if type(o) in (Frame, Slot, Replay, _Saved)]


def test_nothing_of_the_region_is_alive_after_forward_or_backward():
    made = Made()
    x = leaf()
    out = run(lambda x: made(made(made(x.sin()).exp()).cos()).sum(), x)
    assert made.alive == 0
    for _ in range(2):
        out.backward(retain_graph=True)
        assert made.alive == 0
    del out
    assert ours_alive() == []


def test_values_go_as_they_are_consumed():
    made, seen = Made(), []

    def region(x):
        for _ in range(3):
            x = made(x.sin())
            x.register_hook(lambda g: seen.append(made.alive))
        return x * 1.0

    run(region, leaf()).sum().backward()
    assert seen == [0, 1, 0]  # no replay yet; then two values, of which the node that ran has released its own; none


def test_an_error_in_backward_leaves_nothing():
    made = Made()

    class Boom(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            raise ValueError("boom")

    out = run(lambda x: Boom.apply(made(x.sin()).exp().cos()).sin(), leaf())
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            out.sum().backward(retain_graph=True)
        assert made.alive == 0
    x = leaf()
    fail = []

    def region(x):
        y = made(made(x.sin()).exp())
        if fail:
            raise KeyError("replay")
        return y.cos()

    out = run(region, x)
    fail.append(True)
    with pytest.raises(KeyError):
        out.sum().backward(retain_graph=True)
    assert made.alive == 0
    fail.clear()
    out.sum().backward()
    y = leaf()
    y.sin().exp().cos().sum().backward()
    assert torch.equal(x.grad, y.grad)


@pytest.mark.parametrize("how", ["positional", "keyword", "nested"])
def test_arguments_and_function_go_after_a_freeing_backward(how):
    class Token:
        pass

    token = Token()
    there = weakref.ref(token)

    def make(token):
        return lambda x, **k: ((x["x"] if isinstance(x, dict) else x).sin().exp(), token)[0]

    function = make(token)
    h = leaf() * 2
    storage = StorageWeakRef(h.untyped_storage())
    if how == "positional":
        out = run(function, h)
    elif how == "keyword":
        out = run(function, x=h)
    else:
        out = run(function, {"x": h})
    del token, function, h, make
    assert there() is not None
    assert not storage.expired()
    out.sum().backward()
    assert there() is None
    assert storage.expired()
    assert ours_alive() == []


save_exp = functools.partial(reference.create_selective_checkpoint_contexts, [aten.exp.default])


@pytest.mark.parametrize("options", [{}, {"debug": True}, {"determinism_check": "values"}, {"context_fn": save_exp}])
def test_dropping_the_output_frees_everything(options):
    made = Made()
    out = run(lambda x: run(lambda y: made(y.sin()).exp().cos(), made(x.exp())).sin(), leaf(), **options)
    inner = run(lambda x: made(x.sin()).exp(), leaf(), **options)
    del out, inner
    assert made.alive == 0
    assert ours_alive() == []


def test_saved_results_go_with_the_replay():
    saved = []
    context_fn = functools.partial(
        reference.create_selective_checkpoint_contexts, [aten.exp.default, aten.sin.default, aten.mul.Tensor]
    )

    def region(x):
        y = x.exp()
        saved.append(StorageWeakRef(y.untyped_storage()))
        y = (y.sin() * 2).cos()
        return y * 3.0

    out = run(region, leaf(), context_fn=context_fn)
    assert not saved[0].expired()
    out.sum().backward(retain_graph=True)
    assert saved[0].expired()


def test_a_group_keeps_leftovers_until_it_or_the_graph_dies():
    for first in ("group", "graph"):
        made = Made()

        def region(x, made=made):
            return made(x.exp()) * 1.0, made(x.tanh()) * 1.0

        x, group = leaf(), reference.GraphExecGroup()
        a, b = run(region, x, early_stop=False)
        with group:
            torch.autograd.grad(a.sum(), x, retain_graph=True)
        assert made.alive > 0
        if first == "group":
            del group
        else:
            del a, b
        assert made.alive == 0


def test_values_that_a_restricted_backward_does_not_need_go_with_their_node():
    made, seen = Made(), []
    w = leaf()

    def region(x):
        y = made(x.sin())
        y.register_hook(lambda g: seen.append(made.alive))
        return y * w  # backward for x takes w, not y

    x = leaf()
    torch.autograd.grad(run(region, x).sum(), x)
    assert seen == [0]
