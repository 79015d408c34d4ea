"""An accelerator in pure Python: tensors that compute on the CPU, say they live on `sim`, and draw from its generators.

The module has what CUDA's has for random state, and any number of devices in its book-keeping; autograd's engine knows
one, so tensors live on `sim:0`.
"""

from __future__ import annotations

import contextlib

import torch
import torch.utils.backend_registration as registration
from torch.utils._pytree import tree_map

aten = torch.ops.aten
RANDOM = {aten.bernoulli.p, aten.bernoulli_.float, aten.native_dropout.default, aten.rand_like.default}


class Module:
    """`torch.sim`."""

    def __init__(self) -> None:
        self.awake = True
        self.index = 0
        self.generators = [torch.Generator().manual_seed(i) for i in range(2)]

    def is_available(self):
        return True

    def is_initialized(self):
        return self.awake

    def _is_in_bad_fork(self):
        return False

    def device_count(self):
        return len(self.generators)

    def current_device(self):
        return self.index

    def get_amp_supported_dtype(self):
        return [torch.bfloat16]

    def manual_seed_all(self, seed):
        for generator in self.generators:
            generator.manual_seed(seed)

    def get_rng_state(self):
        return self.generators[self.index].get_state()

    def set_rng_state(self, state):
        self.generators[self.index].set_state(state)

    @contextlib.contextmanager
    def device(self, index):
        outer, self.index = self.index, index
        try:
            yield
        finally:
            self.index = outer


sim = Module()
registration._setup_privateuseone_for_python_backend("sim", backend_module=sim)


class SimTensor(torch.Tensor):
    """`inner`, a CPU tensor, on `sim:0`."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=torch.device("sim", 0))

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map(lambda t: t.inner if isinstance(t, SimTensor) else t, (args, kwargs or {}))
        device = kwargs.pop("device", None)
        if func in RANDOM:
            outer = torch.get_rng_state()
            torch.set_rng_state(sim.get_rng_state())
            out = func(*args, **kwargs)
            sim.set_rng_state(torch.get_rng_state())
            torch.set_rng_state(outer)
        else:
            out = func(*args, **kwargs)
        if device is not None and device.type == "cpu":
            return out
        return tree_map(lambda t: SimTensor(t) if isinstance(t, torch.Tensor) else t, out)
