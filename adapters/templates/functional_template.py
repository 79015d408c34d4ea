"""mylib, for the suite: a host, which is the library with its differentiation, and a checkpointer on it.

Fill it in from top to bottom, and run it after each step:

    ckptspec run --adapter=mylib_adapter.py:adapter

It runs as it stands. What raises NotWritten is named at the end of the run, and fails it. An operation or a fact that
is missing makes clauses N/A, a capability that is missing lets them be REFUSED, each by its name in the report. An
adapter translates: it never judges, retries or repairs. The whole contract is in ckptspec/conformance/backend.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ckptspec.conformance.backend import (
    Adapter,
    Array,
    Capability,
    Checkpointer,
    Fact,
    Host,
    HostError,
    NotWritten,
    Ops,
    Pullback,
    Region,
    only,
)

# 1. The library: `import mylib`, and its version.

VERSION = "not written yet"

# 2. Operations, under their names in the Array API. Begin with add, multiply and sin; a clause that needs one which is
# missing is N/A. Random ones (dropout(x, p), uniform_like(x), noisy_relu(x)) draw from the global generator, or take
# `key=`; those that end in _ change their first operand in place.

OPERATIONS: dict[str, Callable[..., Any]] = {
    # <operations>
}


class LibraryHost(Host):
    """The library, knowing nothing of checkpointing."""

    name = "mylib"
    version = VERSION
    ops = Ops("mylib", OPERATIONS)

    # 5. What else the library has. Take the mark from a line once you saw it work, and write the method that it asks
    # for: `seed`, `key`, `needs_gradient`, `gradient`, `tracking`, `jvp`, `batched`, `compile`, `joined`.
    facts = frozenset[Fact](
        [
            # <facts>
        ]
    )

    def __init__(self, device: str) -> None:
        if device != "cpu":
            raise HostError(f"mylib has no device {device!r} here; there is: cpu")

    # 3. These six are enough for the first clauses. The example in each is jax's.

    def array(self, values: np.ndarray[Any, Any]) -> Array:
        """An array with these values and this dtype."""
        # return jax.numpy.array(values)
        raise NotWritten("array")

    def numpy(self, array: Array) -> np.ndarray[Any, Any]:
        """A copy of the values."""
        # return numpy.array(array)
        raise NotWritten("numpy")

    def is_array(self, value: object) -> bool:
        """Whether a value is one of the library's arrays, inside a differentiated function too."""
        # return isinstance(value, jax.Array)
        raise NotWritten("is_array")

    def ones_like(self, array: Array) -> Array:
        """An array of ones: the cotangent that a run uses."""
        # return jax.numpy.ones_like(array)
        raise NotWritten("ones_like")

    def vjp(self, fn: Callable[..., tuple[Array, ...]], *primals: Array) -> tuple[tuple[Array, ...], Pullback]:
        """The outputs of `fn(*primals)`, and the function from cotangents to gradients of the floating-point primals.

        `fn` is given copies. The pullback is called with one cotangent an output, None for one that is not
        differentiated, and with whether it will be called again; it returns zeros where a primal has no influence.
        A library with a tape marks the copies, runs `fn`, and lets the pullback run backward from the outputs.
        """
        # outputs, pull = jax.vjp(fn, *map(jax.numpy.copy, primals))
        # return outputs, lambda cotangents, retain: pull(tuple(cotangents))
        raise NotWritten("vjp")

    def probe(self, x: Array, executed: Callable[[], None]) -> Array:
        """An identity that calls `executed` whenever it is really executed, and whose gradient is the identity's.

        It saves nothing for backward. Make it as one makes an operation of one's own in the library: a replay executes
        it again, a mere trace does not.
        """
        raise NotWritten("probe")


# 4. The checkpointer.


def checkpoint(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    """Call the region checkpointed."""
    only(options)  # refuses every option; translate those that you offer: `early_stop`, `save`, `policy`, …
    # return jax.checkpoint(region)(*args, **kwargs)
    raise NotWritten("checkpoint")


# 6. What it offers beyond the core. Without one, a clause about it may be refused, but never be answered with a wrong
# value; with it, the clause must hold. Options come in under the names that Checkpointer's docstring lists.
CAPABILITIES = frozenset[Capability](
    [
        # <capabilities>
    ]
)


def checkpointer(host: LibraryHost) -> Checkpointer:
    return Checkpointer(checkpoint, CAPABILITIES)


adapter = Adapter("mylib", VERSION, LibraryHost, {"mylib": checkpointer})
