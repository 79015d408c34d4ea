"""JAX as a host, run eagerly: every operation is executed when it is called, unless a program asks for `jit`.

Read top to bottom: the probe, the operations, the host.
"""

# mypy: disable-error-code="no-untyped-call"
# jax ships types, but leaves many of its functions without.

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ckptspec.adapters import words
from ckptspec.conformance.backend import Array, Fact, Host, HostError, Ops, Pullback, Words

# A primitive and not a `pure_callback` in a `custom_vjp`: its implementation runs synchronously, in this thread; a
# policy sees it under its own name; forward mode passes through it; and it carries no effect, which would make remat
# refuse it or keep dead code alive.
_probe = Primitive("probe")


def _execute(x: Array, *, executed: Callable[[], None]) -> Array:
    executed()
    return jnp.copy(x)  # like any operation it makes an array, so that saving its result costs something


_probe.def_impl(_execute)
_probe.def_abstract_eval(lambda x, **_: x)
# The tangent goes past the probe, so that only the value's executions are counted, and no transposition is needed.
ad.primitive_jvps[_probe] = lambda primals, tangents, **params: (_probe.bind(*primals, **params), *tangents)
batching.primitive_batchers[_probe] = lambda args, dims, **params: (_probe.bind(*args, **params), *dims)


def _execute_compiled(x: Array, *, executed: Callable[[], None]) -> Array:
    def call(value: Array) -> Array:
        executed()
        return value

    return jax.pure_callback(call, jax.ShapeDtypeStruct(x.shape, x.dtype), x)


# Inside `jit` or `scan`, whose bodies are compiled; the compiler decides there whether the call happens.
mlir.register_lowering(_probe, mlir.lower_fun(_execute_compiled, multiple_results=False))


def _dropout(x: Array, p: float, *, key: Array) -> Array:
    kept = jax.random.bernoulli(key, 1 - p, x.shape)
    return jnp.where(kept, x / (1 - p), jnp.zeros_like(x))


def _custom(forward: Callable[[Array], Array], backward: Callable[[Array, Array], Array]) -> Callable[[Array], Array]:
    """A function with a backward of its own, which is given the gradient and the input."""
    function: Any = jax.custom_vjp(forward)
    function.defvjp(lambda x: (forward(x), x), lambda x, gradient: (backward(gradient, x),))
    custom: Callable[[Array], Array] = function
    return custom


OPERATIONS: dict[str, Callable[..., Any]] = {
    name: getattr(jnp, name)
    for name in [
        "abs",
        "add",
        "astype",
        "broadcast_to",
        "concat",
        "cos",
        "exp",
        "expand_dims",
        "divide",
        "less",
        "log",
        "matmul",
        "maximum",
        "mean",
        "multiply",
        "negative",
        "permute_dims",
        "reshape",
        "sin",
        "sqrt",
        "square",
        "stack",
        "subtract",
        "sum",
        "tanh",
        "where",
        "zeros_like",
        "ones_like",
    ]
} | {
    "sigmoid": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "dropout": _dropout,
    "uniform_like": lambda x, *, key: jax.random.uniform(key, x.shape, x.dtype),
    "stop_gradient": jax.lax.stop_gradient,
    "custom": _custom,
}

#: Operation names -> the names of the primitives that a policy sees; only operations that are one primitive.
PRIMITIVES: dict[str, str] = {
    **{
        name: name
        for name in ["abs", "add", "cos", "exp", "log", "probe", "reshape", "sin", "sqrt", "square", "stack", "tanh"]
    },
    "astype": "convert_element_type",
    "concat": "concatenate",
    "divide": "div",
    "expand_dims": "broadcast_in_dim",
    "matmul": "dot_general",
    "maximum": "max",
    "multiply": "mul",
    "negative": "neg",
    "permute_dims": "transpose",
    "sigmoid": "logistic",
    "subtract": "sub",
    "sum": "reduce_sum",
}


def _cotangent(output: Array, cotangent: Array | None) -> Array:
    """What jax expects: an array for every output, and for one without a derivative an array of no bits."""
    if not jnp.issubdtype(output.dtype, jnp.inexact):
        return np.zeros(output.shape, jax.dtypes.float0)
    return jnp.zeros_like(output) if cotangent is None else cotangent


class JaxHost(Host):
    """One device; 64-bit types are on, for the whole process."""

    name = "jax"
    version = jax.__version__
    ops = Ops("jax", OPERATIONS)
    # Not EAGER: what jax replays is a trace, of which a region's Python body knows nothing.
    facts = frozenset(
        {
            Fact.KEYED_RANDOM,
            Fact.RETAIN,
            Fact.SEPARATE_OUTPUTS,
            Fact.HIGHER_ORDER,
            Fact.HELD_BYTES,
            Fact.RELEASE,
            Fact.THREADS,
            Fact.FORWARD_MODE,
            Fact.BATCHING,
            Fact.COMPILER,
        }
    )

    def __init__(self, device: str = "cpu") -> None:
        try:
            self.device = jax.devices(device)[0]
        except RuntimeError as error:
            here = ", ".join(sorted({d.platform for d in jax.devices()}))
            raise HostError(f"jax has no device {device!r} here; there are: {here}") from error
        self.restore()
        self.words = Words((words.JAX,)) if device == jax.default_backend() else None

    def restore(self) -> None:
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_default_device", self.device)  # keys and constants have no operand to follow

    def array(self, values: np.ndarray[Any, Any]) -> Array:
        return jnp.array(values)

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        # NumPy itself knows no bfloat16, and would not call it a floating type.
        return np.array(array, np.float32 if array.dtype == jnp.bfloat16 else None)

    def is_array(self, value: object) -> bool:
        return isinstance(value, jax.Array)  # true of tracers too

    def ones_like(self, array: Array) -> Array:
        return jnp.ones_like(array)

    def vjp(self, fn: Callable[..., tuple[Array, ...]], *primals: Array) -> tuple[tuple[Array, ...], Pullback]:
        outputs, pull = jax.vjp(fn, *(jnp.copy(p) for p in primals))

        def pullback(cotangents: Sequence[Array | None], retain: bool) -> list[Array]:
            # A jax pullback keeps what it saved for as long as it lives, whatever `retain` says.
            gradients = pull(tuple(_cotangent(y, c) for y, c in zip(outputs, cotangents, strict=True)))
            return [g for g in gradients if g.dtype != jax.dtypes.float0]

        return outputs, pullback

    def probe(self, x: Array, executed: Callable[[], None]) -> Array:
        return _probe.bind(x, executed=executed)

    def settle(self) -> None:
        jax.effects_barrier()
        jax.block_until_ready(jax.live_arrays())  # a callback in compiled code has run once its result is there

    def key(self, seed: int) -> Any:
        return jax.random.key(seed)

    def gradient(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        gradient: Callable[[Array], Array] = jax.grad(lambda x: jnp.sum(fn(x)))
        return gradient

    def jvp(self, fn: Callable[[Array], Array], x: Array, tangent: Array) -> tuple[Array, Array]:
        value, derivative = jax.jvp(fn, (x,), (tangent,))
        return jax.lax.stop_gradient(value), jax.lax.stop_gradient(derivative)

    def batched(self, fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
        mapped: Callable[[Array], Array] = jax.vmap(fn)
        return mapped

    def compile(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        def compiled(*args: Any) -> Any:
            with jax.disable_jit(False):  # which `deterministic` turns on
                return jax.jit(fn)(*args)

        return compiled

    def stop_gradient(self, array: Array) -> Array:
        return jax.lax.stop_gradient(array)

    def named(self, array: Array, name: str) -> Array:
        return checkpoint_name(array, name)

    @contextlib.contextmanager
    def tracking(self) -> Iterator[Callable[[], int]]:
        before = [weakref.ref(array) for array in jax.live_arrays()]

        def held() -> int:
            gc.collect()
            old = {id(array) for reference in before if (array := reference()) is not None}
            # By buffer: two arrays may share one.
            return sum({a.unsafe_buffer_pointer(): a.nbytes for a in jax.live_arrays() if id(a) not in old}.values())

        yield held

    @contextlib.contextmanager
    def deterministic(self) -> Iterator[None]:
        # A plain run compiles each jax.numpy function as a whole, a region's trace runs op by op; unless both run op by
        # op, a fifth of random programs differ in the last bits. The precision is for CUDA: no TF32.
        with jax.disable_jit(), jax.default_matmul_precision("highest"):
            yield

    def environment(self) -> dict[str, str]:
        return {"jax": jax.__version__, "jaxlib": importlib.metadata.version("jaxlib"), "device": self.device.platform}
