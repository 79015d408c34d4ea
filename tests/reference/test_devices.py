"""Accelerators: whose random state a region keeps, checked on a simulated one."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F

import ckptspec.adapters.hosts.simulated_accelerator as sim
import ckptspec.reference as reference
from ckptspec.adapters.hosts.simulated_accelerator import SimTensor
from ckptspec.reference import devices
from ckptspec.reference.errors import DeviceInitializedInsideError, UnsupportedAcceleratorError

run = functools.partial(reference.checkpoint, use_reentrant=False)


def region(x):
    return F.dropout(x * 2, 0.5).sin()


CALLS = {
    "positional": lambda x: run(region, x),
    "keyword": lambda x: run(lambda *, x: region(x), x=x),
    "in a dict": lambda x: run(lambda d: region(d["x"][0]), {"x": [x]}),
    "captured": lambda x: run(lambda: region(x)),
    "captured, beside a CPU argument": lambda x: run(lambda c: region(x), torch.ones(2, requires_grad=True)),
    "nested regions": lambda x: run(lambda: run(lambda y: region(region(y)), x * 1.0)),
    "reentrant": lambda x: reference.checkpoint(region, x, use_reentrant=True),
    "selective": lambda x: run(lambda x: region(region(x)), x, context_fn=functools.partial(
        reference.create_selective_checkpoint_contexts, [torch.ops.aten.native_dropout.default])),
}  # fmt: skip


def mask_of_gradient(call):
    sim.manual_seed_all(0)
    x = SimTensor(torch.ones(16)).requires_grad_()
    out = call(x)
    F.dropout(x.detach(), 0.5)  # draws between forward and backward
    before = [generator.get_state() for generator in sim.generators]
    out.sum().backward()
    assert all(map(torch.equal, before, [generator.get_state() for generator in sim.generators]))
    return x.grad.on_cpu


@pytest.mark.parametrize("name", CALLS)
def test_lb18_the_state_is_kept_wherever_the_tensor_comes_from(name):
    repeat = 2 if name in ("nested regions", "selective") else 1

    def plain(x):
        for _ in range(repeat):
            x = region(x)
        return x

    assert torch.equal(mask_of_gradient(CALLS[name]), mask_of_gradient(plain))


def test_states_by_name():
    x = SimTensor(torch.ones(2))
    ids, states = reference.get_device_states({"a": [x, torch.ones(1)]}, x)
    assert ids == [0]
    sim.generators[0].manual_seed(99)
    reference.set_device_states(ids, states, device_type="sim")
    assert torch.equal(sim.generators[0].get_state(), states[0])
    assert reference.get_device_states(torch.ones(1)) == ([], [])
    reference.set_device_states([0], [torch.ones(1)], device_type="meta")


@pytest.mark.filterwarnings("always:tensors on several types")
def test_several_types_of_accelerator(monkeypatch):
    monkeypatch.setattr(devices, "kinds", lambda tensors: ["sim", "other"])
    with pytest.warns(UserWarning, match="'sim'"):
        assert reference.get_device_states(SimTensor(torch.ones(2)))[0] == [0]


def test_all_devices_in_use_are_covered():
    def two(x):
        with sim.device(1):
            noise = torch.rand_like(SimTensor(torch.ones(16)))
        return (x * noise).sin()

    def gradient(call):
        sim.manual_seed_all(0)
        x = SimTensor(torch.ones(16)).requires_grad_()
        call(two, x).sum().backward()
        return x.grad.on_cpu

    assert torch.equal(gradient(run), gradient(lambda f, x: f(x)))


def test_an_accelerator_without_random_state_is_refused(monkeypatch):
    monkeypatch.delattr(sim, "get_rng_state")
    x = SimTensor(torch.ones(2)).requires_grad_()
    for reentrant in (True, False):
        with pytest.raises(UnsupportedAcceleratorError, match=r"'sim'.*get_rng_state.*preserve_rng_state=False"):
            reference.checkpoint(torch.sin, x, use_reentrant=reentrant)
    with pytest.raises(UnsupportedAcceleratorError, match="get_rng_state"):
        run(lambda: x.sin())
    run(torch.sin, x, preserve_rng_state=False).sum().backward()
    run(torch.sin, torch.ones(2, requires_grad=True)).sum().backward()


def test_waking_an_accelerator_inside_is_refused(monkeypatch):
    monkeypatch.setattr(sim, "_initialized", False)

    def wakes(x):
        sim._initialized = True
        return x.sin()

    x = torch.ones(2, requires_grad=True)
    for reentrant in (True, False):
        sim._initialized = False
        with pytest.raises(DeviceInitializedInsideError, match="'sim'"):
            reference.checkpoint(wakes, x, use_reentrant=reentrant)
    sim._initialized = False
    run(torch.sin, x).sum().backward()
    run(wakes, x, preserve_rng_state=False).sum().backward()


def test_default_device_type(monkeypatch):
    kind = reference.DefaultDeviceType
    assert kind.get_device_type() == "sim"
    monkeypatch.setattr(kind, "_chosen", None)
    kind.set_device_type("cpu")
    assert kind.get_device_type() == "cpu"


def test_offloaded_results_live_on_the_cpu():
    policy = reference.CheckpointPolicy.MUST_CPU_OFFLOAD
    kept = []

    def context_fn():
        saving, reusing = reference.create_selective_checkpoint_contexts(
            lambda ctx, op, *a, **k: policy if op is torch.ops.aten.sin.default else False
        )
        kept.append(saving.book)
        return saving, reusing

    x = SimTensor(torch.ones(4)).requires_grad_()
    out = run(lambda x: x.sin().exp(), x, context_fn=context_fn)
    entry = kept[0][torch.ops.aten.sin.default].entries[0]
    assert entry.tensors[0].kept.device.type == "cpu"
    assert out.device.type == "sim"  # the way back needs a real device: `.to` of a plain CPU tensor does not reach sim
