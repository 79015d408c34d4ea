"""How a stand-alone program says in JAX's words what a clause says; the form is that of conformance/reproducer."""

import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.extend.core import Primitive
from jax.interpreters import ad, batching


class array:
    given = jnp.array(VALUES, dtype=jnp.DTYPE)
    spaced = jnp.linspace(0.1, 0.9, SIZE, dtype=jnp.DTYPE)


class ops:
    anything_else = jnp
    dropout = dropout
    uniform_like = uniform_like
    sigmoid = jax.nn.sigmoid
    relu = jax.nn.relu


class under_test:
    identity = jnp.copy
    key = jax.random.key
    named = checkpoint_name
    batched = jax.vmap
    stop_gradient = jax.lax.stop_gradient
    forward_derivative = forward_derivative


class handles:
    decorator = decorator_of


class using:
    save = "policy", saving
    save_names = "policy", saving_names
    policy = "policy", deciding


jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)  # so that the plain run is not compiled as a whole


def checkpoint(function, *args, policy=None, **kwargs):
    static = tuple(i for i, a in enumerate(args) if not any(isinstance(x, jax.Array) for x in jax.tree.leaves(a)))
    return jax.checkpoint(function, static_argnums=static, policy=policy)(*args, **kwargs)


def decorator_of(checkpoint, policy=None):
    return (lambda function: function) if checkpoint is plainly else functools.partial(jax.checkpoint, policy=policy)


def vjp(function, *primals):
    value, pullback = jax.vjp(lambda *xs: jax.tree.leaves(function(*xs)), *primals)

    def pull(outputs=None, retain=False):
        is_wanted = [outputs is None or i in outputs for i in range(len(value))]  # if outputs=
        ones = [jnp.ones_like(y) if is_wanted[i] else jnp.zeros_like(y) for i, y in enumerate(value)]  # if outputs=
        ones = [jnp.ones_like(y) for y in value]  # unless outputs=
        is_exact = [not jnp.issubdtype(y.dtype, jnp.inexact) for y in value]
        ones = [np.zeros(y.shape, jax.dtypes.float0) if e else one for y, e, one in zip(value, is_exact, ones)]
        return pullback(ones)

    return value, pull


def arrays(structure):
    return [np.array(x, np.float64) for x in jax.tree.leaves(structure)]


def to_numpy(x):
    return np.array(x)


class Probe:
    """An operation that returns what it is given, and counts how often it is executed."""

    def __init__(self, name=""):
        self.name = name
        self.executions = 0  # if .executions

    def __call__(self, x):
        return probe_primitive.bind(x, probe=self)


ProbeOperator = Probe
probe_primitive = Primitive("probe")


@probe_primitive.def_impl
def execute(x, *, probe):
    probe.executions += 1  # if .executions
    getattr(now, now.phase)[probe] += 1
    return jnp.copy(x)


probe_primitive.def_abstract_eval(lambda x, probe: x)
batching.primitive_batchers[probe_primitive] = lambda xs, dims, probe: (probe(*xs), *dims)
# The tangent goes past the probe, so that executions of the value alone are counted.
ad.primitive_jvps[probe_primitive] = lambda xs, tangents, probe: (probe(*xs), *tangents)


def gradient_of(function):
    return jax.grad(lambda x: jnp.sum(function(x)))


def compiled_function(function):
    def compiled(*args):
        with jax.disable_jit(False):
            return jax.jit(function)(*args)

    return compiled if now.checkpoint is CHECKPOINTED else function


def forward_derivative(function, x, tangent):
    return jax.lax.stop_gradient(jax.jvp(function, (x,), (tangent,)))


def dropout(x, p, *, key):
    return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0.0)


def uniform_like(x, *, key):
    return jax.random.uniform(key, x.shape, x.dtype)


PRIMITIVES = {
    "abs": "abs", "add": "add", "cos": "cos", "exp": "exp", "log": "log", "probe": "probe", "reshape": "reshape",
    "sin": "sin", "sqrt": "sqrt", "square": "square", "stack": "stack", "tanh": "tanh",
    "astype": "convert_element_type", "concat": "concatenate", "divide": "div", "expand_dims": "broadcast_in_dim",
    "matmul": "dot_general", "maximum": "max", "multiply": "mul", "negative": "neg", "permute_dims": "transpose",
    "sigmoid": "logistic", "subtract": "sub", "sum": "reduce_sum",
}  # fmt: skip


def saving(names):
    """A policy that saves the results of these operations."""
    return lambda primitive, *_, **__: primitive.name in [PRIMITIVES[name] for name in names]


def saving_names(names):
    return jax.checkpoint_policies.save_only_these_names(*names)


def deciding(policy):
    operations = {primitive: name for name, primitive in PRIMITIVES.items()}
    return lambda primitive, *_, **__: bool(policy(operations.get(primitive.name)))


class Ledger:
    """The arrays that have been made since."""

    def __init__(self):
        self.before = [weakref.ref(x) for x in jax.live_arrays()]

    def held(self):
        gc.collect()
        old = {id(x) for reference in self.before if (x := reference()) is not None}
        return sum({x.unsafe_buffer_pointer(): x.nbytes for x in jax.live_arrays() if id(x) not in old}.values())

    def end(self):
        pass
