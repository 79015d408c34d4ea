"""TensorPlay 1.0.0 as a host, on the CPU.

Read top to bottom: the probe, the operations, the bytes, the host. What plain TensorPlay gets wrong is left out here
and named where it would have stood, so that no checkpointer is blamed for it.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorplay
from tensorplay.overrides import wrap_tensorplay_function
from tensorplay.profiler import profile

from ckptspec.adapters import words
from ckptspec.conformance.backend import Array, Fact, Host, HostError, Ops, Pullback, Words


def _identity(x: Any, executed: Callable[[], None]) -> Any:
    executed()
    return x.clone()


# A function with TensorPlay's own hook, because a policy sees functions with that hook, and of a custom operator only
# what is called in its body; a custom operator and an autograd.Function also never let go of their outputs.
_probe: Callable[..., Any] = wrap_tensorplay_function(lambda x, executed: (x,))(_identity)

_profile: Callable[..., Any] = profile  # which is untyped

_FUNCTIONS = (
    "abs add concat cos divide exp log matmul maximum mean multiply negative ones_like relu reshape"
    " sigmoid sin sqrt square stack subtract sum tanh where zeros_like"
)
OPERATIONS: dict[str, Callable[..., Any]] = {name: getattr(tensorplay, name) for name in _FUNCTIONS.split()}

#: Operation names -> what a policy sees: the function, or the method or function that it calls.
OPERATORS: dict[str, Any] = OPERATIONS | {
    "divide": tensorplay.Tensor.divide,
    "multiply": tensorplay.Tensor.multiply,
    "subtract": tensorplay.Tensor.subtract,
    "dropout": tensorplay.native_dropout,
    "uniform_like": tensorplay.rand_like,
    "probe": _probe,
}

# Without `multiply_`: after `y.multiply_(z)` plain gradients are those of y alone. Without `noisy_relu`: plain
# `rrelu` reads its float32 noise as if it had the input's dtype.
OPERATIONS |= {
    "broadcast_to": lambda x, shape: x.expand(*shape),  # tensorplay.broadcast_to has no gradient
    "astype": lambda x, dtype: x.to(getattr(tensorplay, dtype)),
    "dropout": tensorplay.nn.functional.dropout,
    "uniform_like": tensorplay.rand_like,
    "permute_dims": tensorplay.permute,
    "expand_dims": tensorplay.unsqueeze,
    "add_": lambda x, y: x.add_(y),
    "sum": lambda x, axis=None: tensorplay.sum(x) if axis is None else tensorplay.sum(x, dim=axis),
    "mean": lambda x, axis=None: tensorplay.mean(x) if axis is None else tensorplay.mean(x, dim=axis),
    "less": tensorplay.lt,
    "stop_gradient": lambda x: x.detach(),
    "no_grad": tensorplay.no_grad,
    "autocast": lambda x: tensorplay.autocast("cpu", dtype=tensorplay.float16, cache_enabled=False),
}

_GENERATOR_STATE = tensorplay.get_rng_state().untyped_storage().nbytes()


class _Allocations:
    """The allocator's book. The profiler shows it only when it stops, so each reading starts another session.

    Weak references don't help: the core keeps a saved array alive without its Python object.
    """

    def __init__(self) -> None:
        self._alive: dict[int, int] = {}
        self._begin()

    def _begin(self) -> None:
        self._session = _profile(profile_memory=True)
        self._session.__enter__()

    def end(self) -> None:
        self._session.__exit__(None, None, None)
        for _, address, size, is_new, *_ in sorted(self._session.mem_events, key=lambda event: event[0]):
            if is_new:
                self._alive[address] = size
            else:
                self._alive.pop(address, None)

    def held(self) -> int:
        gc.collect()
        self.end()
        self._begin()
        # A copy of the generator's state is no array of the program, and larger than a small program's arrays.
        return sum(size for size in self._alive.values() if size != _GENERATOR_STATE)


class TensorPlayHost(Host):
    """`uses_backward`: gradients come from `.backward()`, the reentrant form's documented use, not `autograd.grad`."""

    name = "tensorplay"
    torch = tensorplay
    version = tensorplay.__version__
    ops = Ops("tensorplay", OPERATIONS)
    #: Without HIGHER_ORDER: plain gradients of gradients of tanh, sigmoid and a change of dtype raise, or lack a term.
    facts = frozenset(Fact) - {
        Fact.KEYED_RANDOM,
        Fact.HIGHER_ORDER,
        Fact.HELD_IN_BACKWARD,  # the profiler, which counts, can't be stopped there: it waits for ever
        Fact.ACCELERATOR,
        Fact.SEVERAL_ACCELERATORS,
        Fact.FORWARD_MODE,
        Fact.COMPILER,
        Fact.PROCESSES,  # its DistributedDataParallel raises on one linear layer
    }

    def __init__(self, device: str = "cpu", *, uses_backward: bool = False) -> None:
        if device != "cpu":
            raise HostError(f"tensorplay has no device {device!r} here; there are: cpu")
        self.uses_backward = uses_backward
        self.words = Words((words.TORCH, words.TENSORPLAY), {"torch": "tensorplay", "DEVICE": ""})

    def restore(self) -> None:
        tensorplay.set_default_dtype(tensorplay.float32)
        tensorplay.set_grad_enabled(True)

    def array(self, values: np.ndarray[Any, Any]) -> Array:
        return tensorplay.tensor(values.copy())  # which shares the memory it is given

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        detached = array.detach()
        if detached.dtype == tensorplay.bfloat16:
            detached = detached.float()
        return np.array(detached.numpy())

    def is_array(self, value: object) -> bool:
        return isinstance(value, tensorplay.Tensor)

    def ones_like(self, array: Array) -> Array:
        return tensorplay.ones_like(array)

    def vjp(self, fn: Callable[..., tuple[Array, ...]], *primals: Array) -> tuple[tuple[Array, ...], Pullback]:
        inputs = [p.detach().clone().requires_grad_(p.dtype.is_floating_point) for p in primals]
        outputs = fn(*inputs)
        alone = threading.RLock()  # `.backward()` writes to the inputs

        def pullback(
            cotangents: Sequence[Array | None], retain: bool, chosen: Sequence[int] = range(len(inputs))
        ) -> list[Array]:
            pairs = [(y, c) for y, c in zip(outputs, cotangents, strict=True) if c is not None and y.requires_grad]
            if not pairs:
                raise RuntimeError("no output of the program requires a gradient")
            ys, cs = zip(*pairs, strict=True)
            wanted = tuple(x for i, x in enumerate(inputs) if i in chosen and x.requires_grad)
            found: Sequence[Any]
            if self.uses_backward:
                with alone:
                    for x in wanted:
                        x.grad = None
                    tensorplay.autograd.backward(ys, cs, retain_graph=retain)
                    found = [x.grad for x in wanted]
            else:
                found = tensorplay.autograd.grad(ys, wanted, cs, retain_graph=retain, allow_unused=True)
            return [tensorplay.zeros_like(x) if g is None else g for x, g in zip(wanted, found, strict=True)]

        return outputs, pullback

    def probe(self, x: Array, executed: Callable[[], None]) -> Array:
        return _probe(x, executed)

    def seed(self, seed: int) -> None:
        tensorplay.manual_seed(seed)

    def batched(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        mapped: Callable[[Array], Array] = tensorplay.func.vmap(fn)
        return mapped

    def needs_gradient(self, array: Array) -> bool:
        return bool(array.requires_grad)

    def stop_gradient(self, array: Array) -> Array:
        return array.detach()

    @contextlib.contextmanager
    def tracking(self) -> Iterator[Callable[[], int]]:
        allocations = _Allocations()
        try:
            yield allocations.held
        finally:
            allocations.end()

    def environment(self) -> dict[str, str]:
        return {"tensorplay": tensorplay.__version__, "device": "cpu"}
