"""What surrounds a call and changes what it computes: random state, autocast, default device, grad mode.

Not restored, by contract: Python's and NumPy's random state and explicit generators (RNG-10); default dtype,
deterministic flags, context variables, train/eval (CTX-04); function and dispatch modes (CTX-05).

torch's CPU generator is one for the whole process. A replay rewinds it for its duration, so another thread that draws
meanwhile sees the replay's numbers, and one that draws during a forward shifts them: with random regions in several
threads, masks of forward and replay may differ (LB-16). `preserve_rng_state="exclusive"` holds one lock through each
such forward and replay: regions then agree with their replays, at the price of running one at a time. It excludes
other exclusive regions only, and must not surround a backward on an accelerator (its threads would wait for the lock).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch
from torch import Tensor

from ckptspec.reference import devices, engine

EXCLUSIVE = threading.RLock()

Autocast = dict[str, tuple[bool, torch.dtype, bool]]


class Ambient:
    """The surroundings of a region's forward; the states are copies, not live handles (RNG-12)."""

    __slots__ = ("accelerators", "autocast", "default_device", "exclusive", "kinds", "random")

    def __init__(self, preserve: bool | str, tensors: list[Tensor]) -> None:
        self.kinds = devices.kinds(tensors)
        self.random = torch.get_rng_state() if preserve else None
        self.accelerators = devices.Coverage(self.kinds) if preserve else None
        self.autocast = autocast_state(self.kinds) if engine.any_autocast_enabled() else None
        self.default_device = engine.default_device()
        self.exclusive = preserve == "exclusive"

    def check_use(self, saved: Callable[[], Iterable[str]] = tuple) -> None:
        """After the forward: raise if it used an accelerator whose state at the start is unknown."""
        if self.accelerators is not None:
            self.accelerators.check_use(saved)

    def restored(self) -> Restored:
        """A context in which things are as they were at the forward, with gradients on (GRAD-15)."""
        return Restored(self)


def autocast_state(kinds: list[str]) -> Autocast:
    """Per device type: enabled, dtype, and whether casts of weights are cached (AMP-01)."""
    types = dict.fromkeys(("cpu", devices.DefaultDeviceType.get_device_type(), *kinds))
    cached = torch.is_autocast_cache_enabled()
    return {
        kind: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind), cached)
        for kind in types
        if torch.amp.is_autocast_available(kind)
    }


class Restored:
    """One use of an Ambient: leaves all as it was found, also when the replay raises (RNG-02, RNG-05, RNG-06)."""

    __slots__ = ("ambient", "contexts", "grad", "random", "states")

    def __init__(self, ambient: Ambient) -> None:
        self.ambient = ambient
        self.contexts: ExitStack | None = None

    def __enter__(self) -> None:
        ambient = self.ambient
        if ambient.exclusive:
            EXCLUSIVE.acquire()
        self._enter_contexts()
        if ambient.random is not None:
            self.random = torch.get_rng_state()
            torch.set_rng_state(ambient.random)
            self.states = [state.swap() for state in ambient.accelerators.states] if ambient.accelerators else []
        self.grad = torch.is_grad_enabled()
        engine.set_grad_enabled(True)

    def __exit__(self, *exc: Any) -> None:
        engine.set_grad_enabled(self.grad)
        if self.ambient.random is not None:
            torch.set_rng_state(self.random)
            for state in self.states:
                state.swap()
        if self.contexts is not None:
            self.contexts.close()
        if self.ambient.exclusive:
            EXCLUSIVE.release()

    def _enter_contexts(self) -> None:
        """Autocast and default device, where they differ: a replay inherits neither from backward (AMP-02)."""
        ambient = self.ambient
        wanted: list[AbstractContextManager[Any]] = []
        if ambient.autocast is not None or engine.any_autocast_enabled():
            now = autocast_state(ambient.kinds)
            then = ambient.autocast or {kind: (False, dtype, cached) for kind, (_, dtype, cached) in now.items()}
            if then != now:
                wanted += [
                    torch.autocast(kind, enabled=enabled, dtype=dtype, cache_enabled=cached)
                    for kind, (enabled, dtype, cached) in then.items()
                ]
        if engine.default_device() != ambient.default_device:
            # A fresh context, never the captured mode: entering that again leaks it (CTX-03, LB-11, pytorch#180423).
            device: Any = ambient.default_device or torch.device("cpu")
            wanted.append(device)
        if wanted:
            self.contexts = ExitStack()
            for context in wanted:
                self.contexts.enter_context(context)
