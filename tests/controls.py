"""Controls: implementations with a known fault, made from a right one. The suite must say of each what is wrong.

`CONTROLS` are wrong in what they compute, execute or hold; `KILLERS` end or hang the process, in one clause only.
Here they are made over the tape, an adapter's variant each:

    pytest conformance --adapter=tests/controls.py:controls
    pytest conformance --adapter=tests/controls.py:killers --case-timeout=3
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from tape import TapeHost, Values, tape, tape_checkpointer

from ckptspec.conformance.backend import Adapter, Checkpointer, Host, Region

Call = Callable[[Region, tuple[Any, ...], dict[str, Any], dict[str, Any]], Any]
"""A checkpointer's `checkpoint`: region, arguments, keywords, options."""


@dataclass(frozen=True)
class Tools:
    """What the controls need of a library beyond the suite's Host.

    untracked: inside, nothing is recorded for backward, and the generator stands afterwards where it stood before.
    remembered: every array that is made inside is appended to the list.
    """

    untracked: Callable[[], contextlib.AbstractContextManager[Any]]
    remembered: Callable[[list[Any]], contextlib.AbstractContextManager[Any]]


Control = Callable[[Call, Host, Tools], Call]
"""Makes a faulty `checkpoint` from a right one."""


def plain_call(right: Call, host: Host, tools: Tools) -> Call:
    """No checkpoint at all."""
    return lambda region, args, kwargs, options: region(*args, **kwargs)


def replay_in_forward(right: Call, host: Host, tools: Tools) -> Call:
    """Executes the region twice, but both times in forward."""

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        with tools.untracked():
            region(*args, **kwargs)
        return region(*args, **kwargs)

    return call


def two_replays(right: Call, host: Host, tools: Tools) -> Call:
    """Executes the region twice on behalf of one backward."""

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        executions = 0

        def twice(*args: Any, **kwargs: Any) -> Any:
            nonlocal executions
            executions += 1
            if executions > 1:
                with tools.untracked():
                    region(*args, **kwargs)
            return region(*args, **kwargs)

        return right(twice, args, kwargs, options)

    return call


_kept: list[Any] = []
ENOUGH = 1000
"""How much of everything: more than any clause about memory makes."""


def keeps_everything(right: Call, host: Host, tools: Tools) -> Call:
    """Does not let go of what a region refers to and computes."""

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        def remembered(*args: Any, **kwargs: Any) -> Any:
            with tools.remembered(_kept):
                return region(*args, **kwargs)

        _kept.append(region)
        del _kept[:-ENOUGH]
        return right(remembered, args, kwargs, options)

    return call


def zero_values(right: Call, host: Host, tools: Tools) -> Call:
    """Returns zeros."""
    return _changing_results(right, host, lambda y: host.ops.multiply(y, 0.0))


def zero_gradients(right: Call, host: Host, tools: Tools) -> Call:
    """Returns the right values, whose gradients are zero."""
    return _changing_results(right, host, lambda y: host.ops.add(host.stop_gradient(y), host.ops.multiply(y, 0.0)))


def _changing_results(right: Call, host: Host, change: Callable[[Any], Any]) -> Call:
    def changed(result: Any) -> Any:
        if host.is_array(result):
            return change(result)
        if isinstance(result, dict):
            return {k: changed(v) for k, v in result.items()}
        return type(result)([changed(v) for v in result]) if isinstance(result, list | tuple) else result

    return lambda region, args, kwargs, options: changed(right(region, args, kwargs, options))


def always_raises(right: Call, host: Host, tools: Tools) -> Call:
    """Refuses every call."""

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        raise NotImplementedError("this control refuses every call")

    return call


CONTROLS: dict[str, Control] = {
    "plain-call": plain_call,
    "replay-in-forward": replay_in_forward,
    "two-replays": two_replays,
    "keeps-everything": keeps_everything,
    "zero-values": zero_values,
    "zero-gradients": zero_gradients,
    "always-raises": always_raises,
}


# -- Killers -----------------------------------------------------------------------------------------------------------


TARGET = "test_values_and_gradients_equal_the_plain_run"
"""The clause in whose region killers strike, and there only for float64."""


def interrupt() -> None:
    raise KeyboardInterrupt


KILLERS: dict[str, Callable[[], object]] = {
    "abort": os.abort,
    "segfault": lambda: ctypes.string_at(0),
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hang": lambda: ctypes.PyDLL(None).sleep(1000),  # a PyDLL call keeps the interpreter's lock
    "keyboard-interrupt": interrupt,
    "sys-exit": lambda: sys.exit(0),
    "pytest-exit": lambda: pytest.exit("enough"),
}


def killer(strike: Callable[[], object]) -> Control:
    """Right, except in the target."""

    def control(right: Call, host: Host, tools: Tools) -> Call:
        def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
            if _is_target(region, args, host):
                strike()
            return right(region, args, kwargs, options)

        return call

    return control


def late_abort(right: Call, host: Host, tools: Tools) -> Call:
    """Right, but from the target on a thread waits that aborts the process during a later case."""
    has_struck = False

    def abort() -> None:
        time.sleep(0.5)
        os.abort()

    def call(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
        nonlocal has_struck
        if has_struck and not _is_target(region, args, host):
            time.sleep(0.2)  # so that only a few cases pass before the abort
        if _is_target(region, args, host):
            has_struck = True
            threading.Thread(target=abort, daemon=True).start()
        return right(region, args, kwargs, options)

    return call


def _is_target(region: Region, args: tuple[Any, ...], host: Host) -> bool:
    name = getattr(region, "__qualname__", "")
    return TARGET in name and any(host.is_array(a) and host.numpy(a).dtype == "float64" for a in args)


# -- Adapters ----------------------------------------------------------------------------------------------------------


def faulty(right: Callable[[Any], Checkpointer], control: Control, tools: Tools) -> Callable[[Any], Checkpointer]:
    """Makes the checkpointer with a control's fault, in its direct and its decorator form."""

    def make(host: Host) -> Checkpointer:
        checkpointer = right(host)
        call = control(checkpointer.checkpoint, host, tools)

        def decorator(options: dict[str, Any]) -> Callable[[Region], Region]:
            def decorate(region: Region) -> Region:
                @functools.wraps(region)
                def decorated(*args: Any, **kwargs: Any) -> Any:
                    return call(region, args, kwargs, options)

                return decorated

            return decorate

        has_decorator = checkpointer.decorator is not None
        return replace(checkpointer, checkpoint=call, decorator=decorator if has_decorator else None)

    return make


@contextlib.contextmanager
def _untracked() -> Iterator[None]:
    state = tape.generator.bit_generator.state
    with tape.switched(recording=False, regions=[]):
        yield
    tape.generator.bit_generator.state = state


def _remembered(arrays: list[Values]) -> contextlib.AbstractContextManager[None]:
    return tape.switched(observers=[*tape.observers, arrays.append])


TOOLS = Tools(_untracked, _remembered)


def _adapter(name: str, controls: dict[str, Control]) -> Adapter:
    variants = {variant: faulty(tape_checkpointer, control, TOOLS) for variant, control in controls.items()}
    return Adapter(name, "1", TapeHost, variants)


controls = _adapter("controls", CONTROLS)
killers = _adapter("killers", {name: killer(strike) for name, strike in KILLERS.items()})
late = _adapter("late", {"late-abort": late_abort})
