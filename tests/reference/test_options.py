"""Names, signatures and options; the decorator form; contexts; debug; hooks."""

# ruff: noqa: E731 (regions are short; as lambdas they stand beside their use)

from __future__ import annotations

import contextlib
import functools
import inspect

import pytest
import torch
import torch.utils.checkpoint as theirs

import ckptspec.reference as reference
from ckptspec.reference import checkpoint
from ckptspec.reference.errors import CheckpointError, ReplayMismatchError, SuppressedForwardError
from ckptspec.reference.settings import DEFAULTS, RULES, Options

run = functools.partial(checkpoint, use_reentrant=False)


def leaf(n=3):
    return torch.linspace(0.1, 1.0, n).requires_grad_()


def test_every_name_of_torch_is_here():
    assert sorted(reference.__all__) == sorted(theirs.__all__)
    assert [p.name for p in reference.CheckpointPolicy] == [p.name for p in theirs.CheckpointPolicy]
    assert [p.value for p in reference.CheckpointPolicy] == [p.value for p in theirs.CheckpointPolicy]


@pytest.mark.parametrize("name", [
    "checkpoint_sequential", "check_backward_validity", "detach_variable", "get_device_states", "set_device_states",
    "noop_context_fn", "set_checkpoint_early_stop", "set_checkpoint_debug_enabled", "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
])  # fmt: skip
def test_parameters_are_those_of_torch(name):
    parameters = lambda library: [
        (p.name, p.kind, p.default) for p in inspect.signature(getattr(library, name)).parameters.values()
    ]
    assert parameters(reference) == parameters(theirs)


def test_signature_of_checkpoint():
    """That of torch 2.14; 2.13 has neither named preserve_rng_state nor respect_saved_tensors_hooks."""
    parameters = inspect.signature(checkpoint).parameters
    assert list(parameters) == [
        "function", "args", "use_reentrant", "preserve_rng_state", "context_fn", "determinism_check", "debug",
        "early_stop", "respect_saved_tensors_hooks", "kwargs",
    ]  # fmt: skip
    assert parameters["function"].default is None
    assert {name: parameters[name].default for name in RULES} == DEFAULTS._asdict()
    assert tuple(RULES) == Options._fields


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("name", RULES)
def test_the_table(name, reentrant):
    rule, x = RULES[name], leaf()
    if name != "use_reentrant":
        calls = []
        with pytest.raises(ValueError, match=name):
            checkpoint(calls.append, x, use_reentrant=reentrant, **{name: "bogus"})
        with pytest.raises(ValueError, match=name):
            checkpoint(use_reentrant=reentrant, **{name: "bogus"})
        assert not calls
        for value in rule.values or (lambda: reference.noop_context_fn(),):
            allowed = rule.reentrant or not reentrant or value == getattr(DEFAULTS, name)
            with contextlib.nullcontext() if allowed else pytest.raises(ValueError, match=name):
                checkpoint(torch.sin, x, use_reentrant=reentrant, **{name: value}).sum().backward()


def test_combinations_are_refused():
    with pytest.raises(ValueError, match="context_fn"):
        run(torch.sin, leaf(), debug=True, context_fn=lambda: reference.noop_context_fn())
    with reference.set_checkpoint_debug_enabled(True), pytest.raises(ValueError, match="context_fn"):
        run(torch.sin, leaf(), context_fn=lambda: reference.noop_context_fn())
    with pytest.raises(ValueError, match="keyword arguments: s"):
        checkpoint(lambda x, s: x * s, leaf(), s=2, use_reentrant=True)
    with pytest.raises(ValueError, match="keyword arguments: bogus"):
        checkpoint(bogus=1, use_reentrant=False)
    with pytest.raises(TypeError, match="not callable"):
        checkpoint(None, leaf(), use_reentrant=False)
    with pytest.raises(ValueError, match="debug"):
        reference.checkpoint_sequential([torch.sin], 1, leaf(), use_reentrant=False, debug=True)


def test_the_decorator_form():
    class Model(torch.nn.Module):
        @checkpoint(use_reentrant=False)
        def forward(self, x, *, early_stop=3, function=1):
            """The docstring."""
            return (x * early_stop * function).sin()

        @staticmethod
        @checkpoint(None, use_reentrant=False)
        def static(x):
            return x.sin()

    assert Model.forward.__name__ == "forward"
    assert Model.forward.__doc__ == "The docstring."
    assert list(inspect.signature(Model.forward).parameters) == ["self", "x", "early_stop", "function"]
    assert Model.forward.__wrapped__ is not None
    model, x, y = Model(), leaf(), leaf()
    model(x, early_stop=2, function=5).sum().backward()
    (y * 2 * 5).sin().sum().backward()
    assert torch.equal(x.grad, y.grad)
    Model.forward(model, x)
    Model.static(x).sum().backward()
    calls = []
    twice = checkpoint(use_reentrant=False)
    zero = twice(twice(lambda: (calls.append(0), x.sin().exp())[1]))
    zero().sum().backward()
    assert 2 <= len(calls) <= 3


def test_contexts_see_success_and_failure():
    seen = []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, kind, *_):
            seen.append(kind)
            return self.name == "suppresses"

    run(lambda x: x.sin().exp() * 1.0, leaf(), context_fn=lambda: (Context("f"), Context("r"))).sum().backward()
    assert seen == ["f", None, "r", None]

    def fails(x):
        raise KeyError("x")

    with pytest.raises(KeyError):
        run(fails, leaf(), context_fn=lambda: (Context("f"), Context("r")))
    with pytest.raises(SuppressedForwardError, match="suppressed"):
        run(fails, leaf(), context_fn=lambda: (Context("suppresses"), Context("r")))


@pytest.mark.parametrize("how", ["option", "setting"])
def test_debug_shows_what_differs(how):
    factor = [1]

    def region(x):
        for _ in range(factor[0]):
            x = x.sin()
        return x.exp()

    with reference.set_checkpoint_debug_enabled(True if how == "setting" else None):
        out = run(region, leaf(), debug=how == "option")
    factor[0] = 0
    with pytest.raises(ReplayMismatchError) as seen:
        out.sum().backward()
    text = str(seen.value)
    assert "aten.sin.default" in text
    assert "original forward" in text
    assert "recomputation" in text
    assert __file__ in text
    assert isinstance(seen.value.__cause__, CheckpointError)


def test_mismatches_name_position_and_metadata():
    size = [2]
    out = run(lambda x: x[: size[0]].sin().exp(), leaf())
    size[0] = 3
    with pytest.raises(CheckpointError, match=r"(?s)position 1.*\[2\].*\[3\].*debug=True"):
        out.sum().backward()
    run(lambda x: x.sin().exp(), leaf(), determinism_check="none").sum().backward()


def test_hooks_of_the_user():
    packed = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t)
    x, s, u = leaf(), leaf(), leaf()
    with hooks:
        out = run(lambda x, y, d, s: (x * y * s * d["u"]).sin().exp(), x, x, {"u": u}, s=s)
    assert [id(t) for t in packed] == [id(x), id(u), id(s)]
    out.sum().backward()
    assert torch.equal(s.grad, u.grad)
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"), pytest.raises(RuntimeError, match="not here"):
        run(torch.sin, leaf())


@pytest.mark.parametrize("nested", [False, True])
def test_respect_saved_tensors_hooks(nested):
    policy = [torch.ops.aten.sin.default]
    context_fn = functools.partial(reference.create_selective_checkpoint_contexts, policy)
    region = lambda x: x.sin().exp().cos()
    for respect, expected in ((True, 1), (False, 0)):
        packed, unpacked = [], []
        x, y = leaf(), leaf()
        pack = lambda t, packed=packed: packed.append(t) or t
        unpack = lambda t, unpacked=unpacked: unpacked.append(t) or t
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            call = functools.partial(run, context_fn=context_fn, respect_saved_tensors_hooks=respect)
            out = run(lambda x, call=call: call(region, x) * 2.0, x) if nested else call(region, x)
        assert len(packed) == 1 + expected  # the argument, and the saved result
        out.sum().backward()
        assert len(unpacked) == len(packed)
        (region(y) * (2.0 if nested else 1.0)).sum().backward()
        assert torch.equal(x.grad, y.grad)
    with torch.autograd.graph.save_on_cpu(), pytest.warns(FutureWarning, match="respect_saved_tensors_hooks") as seen:
        run(region, leaf(), context_fn=context_fn)
    assert seen[0].filename == __file__


def test_helpers():
    x = leaf()
    (y, other) = reference.detach_variable((x * 1, 3))
    assert y.is_leaf
    assert y.requires_grad
    assert other == 3
    with pytest.raises(RuntimeError, match="list"):
        reference.detach_variable([x])
    with pytest.warns(UserWarning, match="requires_grad"):
        reference.check_backward_validity([x.detach()])
