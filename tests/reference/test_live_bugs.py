"""One test for each fault of torch 2.13's checkpoint (LB-nn in the catalogue), with the plain program beside it."""

# ruff: noqa: E731 (regions are short; as lambdas they stand beside their use)

from __future__ import annotations

import contextlib
import functools
import threading
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import ckptspec.reference as reference
from ckptspec.reference import CheckpointPolicy, checkpoint, checkpoint_sequential
from ckptspec.reference.errors import (
    CheckpointError,
    MutatedArgumentError,
    MutatedCaptureError,
    OverwrittenValueError,
    ReentrantCreateGraphError,
    ReentrantOutputError,
    UnknownPolicyError,
    ValueMismatchError,
    VmapError,
)

aten = torch.ops.aten
run = functools.partial(checkpoint, use_reentrant=False)


def leaf(value=0.7, n=2):
    return torch.full((n,), value, requires_grad=True)


def gradient(call, function, *args, seed=1, **options):
    torch.manual_seed(seed)
    x = args[0].detach().clone().requires_grad_()
    out = call(function, x, *args[1:], **options)
    torch.rand(3)  # draws between forward and backward
    out.sum().backward()
    return x.grad


def plain(function, *args):
    return function(*args)


def selective(policy, **options):
    return functools.partial(reference.create_selective_checkpoint_contexts, policy, **options)


# ---- LB-01: an operation saves a buffer that its kernel fills later


@pytest.mark.parametrize("early_stop", [True, False])
def test_lb01_rrelu_buffer_is_complete(early_stop):
    layer = torch.nn.RReLU().train()
    x = torch.randn(50)
    region = lambda x: layer(x * 1.5)
    assert torch.equal(gradient(plain, region, x), gradient(run, region, x, early_stop=early_stop))


def test_lb01_under_a_dispatch_mode_and_a_function_mode():
    class Through(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    layer = torch.nn.RReLU().train()

    def region(x):
        with Through(), torch.device("cpu"):
            return layer(x * 1.5)

    x = torch.randn(50)
    expected = gradient(plain, region, x)
    assert torch.equal(expected, gradient(run, region, x, context_fn=selective([aten.mul.Tensor])))
    assert torch.overrides._get_current_function_mode_stack() == []


def test_lb01_nothing_runs_after_the_buffer_is_complete():
    layer = torch.nn.RReLU().train()
    calls = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            calls.append(None)
            return x.view_as(x)

        @staticmethod
        def backward(ctx, g):
            return g

    out = run(lambda x: Probe.apply(layer(x * 1.5) + 1), torch.randn(5, requires_grad=True))
    out.sum().backward()
    assert len(calls) == 1


def test_lb01_nested():
    layer = torch.nn.RReLU().train()
    inner = lambda x: layer(x.sin())
    x = torch.randn(50)
    outer = lambda call: lambda x: layer(call(inner, x) * 2)
    assert torch.equal(gradient(plain, outer(plain), x), gradient(run, outer(run), x))


# ---- LB-02, LB-03: selective policies


@pytest.mark.parametrize("preserve", [True, False])
def test_lb02_a_saved_random_op_does_not_shift_later_draws(preserve):
    def region(x):
        a = torch.rand_like(x)
        b = torch.bernoulli(torch.full_like(x, 0.5))
        return ((x * a).sin() * b).exp()

    x = torch.randn(50)
    context_fn = selective([aten.rand_like.default])
    got = gradient(run, region, x, context_fn=context_fn, preserve_rng_state=preserve)
    assert torch.equal(gradient(plain, region, x), got)


def test_lb02_the_generator_is_left_alone():
    region = lambda x: (x * torch.rand_like(x)).sin()
    out = run(region, leaf(), context_fn=selective([aten.rand_like.default]), preserve_rng_state=False)
    before = torch.get_rng_state()
    out.sum().backward()
    assert torch.equal(before, torch.get_rng_state())


def test_lb03_a_saved_view_that_is_then_changed():
    def region(x):
        y = x.sin()
        v = y.view(-1)
        v.mul_(2)
        return y.cos().exp()

    x = torch.randn(4)
    for ops in ([aten.view.default], [aten.sin.default, aten.view.default], [aten.mul_.Tensor]):
        expected = gradient(plain, region, x)
        try:
            got = gradient(run, region, x, context_fn=selective(ops))
        except CheckpointError as error:
            assert "has been mutated" in str(error)  # noqa: PT017
            assert aten.sin.default in ops
        else:
            assert torch.equal(expected, got)
        copies = selective(ops, allow_cache_entry_mutation=True)
        assert torch.equal(expected, gradient(run, region, x, context_fn=copies))


# ---- LB-04, LB-05: in-place changes


@pytest.mark.parametrize("early_stop", [True, False])
def test_lb04_overwritten_inside(early_stop):
    def region(x):
        y = x.exp()
        y.mul_(3)
        return y

    with pytest.raises(RuntimeError, match="inplace"):
        gradient(plain, region, torch.full((2,), 0.7))
    out = None
    with contextlib.suppress(OverwrittenValueError):
        out = gradient(run, region, torch.full((2,), 0.7), early_stop=early_stop)
    assert out is None or torch.allclose(out, 3 * torch.full((2,), 0.7).exp())
    assert early_stop or out is None


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        (lambda f, x, s: run(f, x, s), MutatedArgumentError),
        (lambda f, x, s: run(f, x, s=s), MutatedArgumentError),
        (lambda f, x, s: run(lambda x, d: f(x, d["s"][0]), x, {"s": [s]}), MutatedArgumentError),
        (lambda f, x, s: run(lambda x: f(x, s), x), MutatedCaptureError),
        (lambda f, x, s: run(lambda x: run(f, x, s=s), x), CheckpointError),
        (lambda f, x, s: checkpoint(f, x, s, use_reentrant=True), RuntimeError),
        (lambda f, x, s: checkpoint(lambda x, d: f(x, d["s"]), x, {"s": s}, use_reentrant=True), MutatedArgumentError),
    ],
)
def test_lb05_changed_between_forward_and_backward(how, cause):
    function = lambda x, s: (x * s).sin()
    for call in (lambda f, x, s: f(x, s), how):
        x, s = leaf(), torch.full((2,), 2.0)
        out = call(function, x, s)
        s.mul_(3)
        with pytest.raises(RuntimeError if call is not how else cause, match=r"inplace|in place"):
            out.sum().backward()
        assert x.grad is None


@pytest.mark.parametrize("reentrant", [True, False])
def test_lb05_changed_by_the_region_itself(reentrant):
    def region(x, s):
        s.mul_(3)
        return (x * s).sin()

    out = checkpoint(region, leaf(), torch.full((2,), 2.0), use_reentrant=reentrant)
    with pytest.raises(CheckpointError, match="inplace"):
        out.sum().backward()


def test_lb05_a_parameter_stepped_between():
    layer = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(2, 3, requires_grad=True)
    for out in (layer(x).sin(), run(lambda x: layer(x).sin(), x)):
        layer(x).sum().backward()
        optimizer.step()
        with pytest.raises(RuntimeError, match=r"inplace|in place"):
            out.sum().backward()


# ---- LB-06, LB-07, LB-12: the reentrant form


def test_lb06_reentrant_refuses_create_graph():
    x = leaf()
    run(lambda x: (x**3).sin(), x).sum().backward(create_graph=True)
    assert x.grad.requires_grad
    x.grad = None  # breaks the cycle that torch warns of
    out = checkpoint(lambda x: (x**3).sin(), leaf(), use_reentrant=True)
    with pytest.raises(ReentrantCreateGraphError, match="use_reentrant=False"):
        torch.autograd.backward(out.sum(), create_graph=True)


test_lb06_reentrant_refuses_create_graph = pytest.mark.filterwarnings("ignore:Using backward")(
    test_lb06_reentrant_refuses_create_graph
)


@pytest.mark.parametrize("pack", [lambda y: {"a": y}, lambda y: [y], lambda y: (y, [y])])
def test_lb07_reentrant_refuses_nested_results(pack):
    with pytest.raises(ReentrantOutputError, match="detached"):
        checkpoint(lambda x: pack(x * 2), leaf(), use_reentrant=True)


@pytest.mark.parametrize("reentrant", [True, False])
def test_lb12_default_device(reentrant):
    seen = []

    def region(x):
        seen.append(torch.empty(1).device.type)
        return x.sin().cos()

    x = leaf()
    with torch.device("meta"):
        out = checkpoint(region, x, use_reentrant=reentrant)
    out.sum().backward()
    out = checkpoint(region, x, use_reentrant=reentrant)
    with torch.device("meta"):
        out.sum().backward()
    assert seen == ["meta", "meta", "cpu", "cpu"]


# ---- LB-08 to LB-11: signals, contexts, devices


def test_lb08_the_stop_is_no_exception():
    handled = []

    def region(x):
        y = x.sin()
        try:
            return y.exp()
        except Exception:
            handled.append(y)
            return (y * y).cos()

    x = torch.randn(3)
    assert torch.equal(gradient(plain, region, x), gradient(run, region, x))
    assert not handled


def test_lb09_debug_and_generator_contexts_serve_several_backwards():
    @contextlib.contextmanager
    def context():
        yield

    for options in ({"debug": True}, {"context_fn": lambda: (context(), context())}):
        x = leaf()
        out = run(lambda x: x.sin().cos(), x, **options).sum()
        out.backward(retain_graph=True)
        out.backward()
        once = gradient(plain, lambda x: x.sin().cos(), torch.full((2,), 0.7))
        assert torch.equal(x.grad, 2 * once)


@pytest.mark.parametrize("error", [StopIteration, ValueError, KeyboardInterrupt, GeneratorExit])
@pytest.mark.parametrize("reentrant", [True, False])
def test_lb10_exceptions_pass_unchanged(error, reentrant):
    def region(x):
        raise error("x")

    with pytest.raises(error) as seen:
        checkpoint(region, leaf(), use_reentrant=reentrant)
    assert type(seen.value) is error


def test_lb11_no_default_device_leaks():
    x = leaf()
    torch.set_default_device("meta")
    try:
        out = run(lambda x: x.sin().exp(), x)
        assert out.grad_fn._saved_result.device.type == "cpu"  # a replay outside of a backward
    finally:
        torch.set_default_device(None)
    assert torch.empty(1).device.type == "cpu"
    torch.set_default_device("meta")
    try:
        run(lambda x: x.sin().exp(), x).sum().backward()
    finally:
        torch.set_default_device(None)
    assert torch.utils._device.CURRENT_DEVICE is None
    assert torch.empty(1).device.type == "cpu"


# ---- LB-13: policies


class Count(TorchDispatchMode):
    n = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.n += func is aten.mm.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
def test_lb13_what_a_policy_saves_is_not_replayed(policy):
    region = lambda x: torch.mm(x.cos(), torch.eye(3)).sin()
    x = torch.randn(3, 3, requires_grad=True)
    out = run(region, x, context_fn=selective(lambda ctx, op, *a, **k: policy))
    with Count() as count:
        out.sum().backward()
    assert count.n == (2 if "RECOMPUTE" in policy.name else 1)
    assert torch.equal(x.grad, gradient(plain, region, x))


@pytest.mark.parametrize("answer", [None, "save", 0])
def test_lb13_unknown_answers_are_refused(answer):
    with pytest.raises(UnknownPolicyError, match=repr(answer)):
        run(torch.sin, leaf(), context_fn=selective(lambda ctx, op, *a, **k: answer))


# ---- LB-14 to LB-18: transforms, leftovers, threads


def test_lb14_vmap_is_refused_at_the_call():
    with pytest.raises(VmapError, match="inside of the region"):
        torch.func.vmap(lambda x: run(torch.sin, x))(torch.randn(4, 3, requires_grad=True))
    region = lambda x: torch.func.vmap(lambda x: x.sin().cos())(x)
    assert torch.equal(gradient(plain, region, torch.ones(4)), gradient(run, region, torch.ones(4)))


def test_lb15_partial_backwards_leave_nothing():
    made = []

    def region(x):
        z = x.tanh()
        made.append(StorageWeakRef(z.untyped_storage()))
        return x.exp() * 1.0, z * 1.0

    x = leaf(n=100)
    y, z = run(region, x)
    for _ in range(3):
        torch.autograd.grad(y.sum(), x, retain_graph=True)
        assert sum(not ref.expired() for ref in made) == 0
    assert torch.autograd.grad(z.sum(), x)[0] is not None


def test_lb16_random_regions_in_threads_with_the_option():
    different = []

    def work():
        for _ in range(40):
            x, masks = torch.ones(200, requires_grad=True), []

            def region(x, masks=masks):
                masks.append(F.dropout(torch.ones(200), 0.5))
                return (x * masks[-1]).sin().cos()

            run(region, x, preserve_rng_state="exclusive").sum().backward()
            different.append(not torch.equal(*masks))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert different == [False] * 160


def test_lb17_settings_are_per_thread():
    calls = []

    def region(x):
        y = x.sin()
        calls.append(threading.current_thread().name)
        return y * 1.0

    def work():
        run(lambda x: (x.sin(), calls.append(0))[0] + 1, leaf()).sum().backward()

    with reference.set_checkpoint_early_stop(False):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert len(calls) == 1  # the replay there stopped early
        work()
    assert len(calls) == 3


@pytest.mark.parametrize("how", ["positional", "keyword", "nested"])
def test_lb18_arguments_of_inner_regions_belong_to_the_outer_one(how):
    made = []
    inner = lambda h: h.exp().sin()

    def outer(x, call):
        h = x.sin()
        made.append(StorageWeakRef(h.untyped_storage()))
        if how == "positional":
            return call(inner, h).cos()
        if how == "keyword":
            return call(lambda h: inner(h), h=h).cos()
        return call(lambda d: inner(d["h"][0]), {"h": [h]}).cos()

    x = leaf(n=100)
    out = run(lambda x: outer(x, run), x)
    assert made[0].expired()
    out.sum().backward()
    assert torch.equal(x.grad, gradient(plain, lambda x: outer(x, lambda f, *a, **k: f(*a, **k)), x))


# ---- LB-19 to LB-22


@pytest.mark.parametrize("segments", [3, 0, -1])
def test_lb19_segments(segments):
    with pytest.raises(ValueError, match=rf"segments.*2.*{segments}"):
        checkpoint_sequential([torch.sin, torch.cos], segments, leaf(), use_reentrant=False)


def test_lb20_warnings_name_the_caller():
    decorated = checkpoint()(torch.sin)
    for call in (lambda: checkpoint(torch.sin, leaf()), lambda: decorated(leaf())):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call()
        assert [w.filename for w in seen] == [__file__]
    with pytest.warns(UserWarning, match="use_reentrant") as record:
        checkpoint_sequential([torch.sin], 1, leaf())
    assert record[0].filename == __file__


def test_lb21_value_drift_is_seen_by_those_who_ask():
    factor = [2.0]
    x = leaf()
    out = run(lambda x: (x * factor[0]).sin().cos(), x, determinism_check="values").sum()
    out.backward(retain_graph=True)
    factor[0] = 5.0
    with pytest.raises(ValueMismatchError, match="position"):
        out.backward()


def test_lb21_value_check_and_buffers_filled_later():
    layer = torch.nn.RReLU().train()
    region = lambda x: layer(x * 1.5).sin().sum()
    x = torch.randn(50)
    assert torch.equal(gradient(plain, region, x), gradient(run, region, x, determinism_check="values"))


def test_lb22_a_frozen_parameter_changes_the_count():
    p, x = leaf(), leaf()
    out = run(lambda x: (x * p).sin(), x)
    p.requires_grad_(False)
    with pytest.raises(CheckpointError, match="number of tensors"):
        out.sum().backward()


@pytest.mark.parametrize("shape", ["closure", "module", "partial", "method"])
def test_lb05_reentrant_sees_what_the_function_visibly_holds(shape):
    layer, s = torch.nn.Linear(2, 2), torch.full((2,), 2.0)
    scale = lambda s, x: (x * s).sin()
    region, held = {
        "closure": (lambda x: scale(s, x), s),
        "module": (layer, layer.weight),
        "partial": (functools.partial(scale, s), s),
        "method": (layer.forward, layer.weight),
    }[shape]
    out = checkpoint(region, leaf(), use_reentrant=True)
    held.data.detach()
    with torch.no_grad():
        held.mul_(3)
    with pytest.raises(MutatedArgumentError, match="inplace"):
        out.sum().backward()
