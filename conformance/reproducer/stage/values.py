"""For a fault in values: a program is run plain and checkpointed, and the two are compared."""

import types
from collections import Counter

import numpy as np


class under_test:
    run = run
    attempt = attempt
    phase = now.phase
    checkpoint = now.checkpoint


def run(program, *primals, plain=None, backward=None, tolerance=None):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(plain or program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        assert all(np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)), f"{label}: {os} instead of {es}"  # unless tolerance=
        assert all(is_near(e, o, tolerance) for e, o in zip(es, os)), f"{label}: {os} instead of {es}"  # if tolerance=


def attempt(program, *primals, plain=None, backward=None, tolerance=None):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(plain or program, plainly, primals, backward=backward)
    try:
        observed = results(program, CHECKPOINTED, primals, backward=backward)
    except Exception as error:
        return print("an error will do:", error)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        assert all(np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)), f"{label}: {os} instead of {es}"  # unless tolerance=
        assert all(is_near(e, o, tolerance) for e, o in zip(es, os)), f"{label}: {os} instead of {es}"  # if tolerance=


def is_near(expected, observed, tolerance):
    """Whether they differ by no more than this, relative to the largest element."""
    return np.allclose(observed, expected, tolerance, tolerance * np.abs(expected).max(initial=0), equal_nan=True)


def results(program, checkpoint, primals, *, backward=None):
    seed(20180101)  # if seed
    now.phase, now.checkpoint = "forward", checkpoint  # if now compiled_function ProbeOperator
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"  # if now ProbeOperator
    return value, arrays(backward(pull) if backward else pull())


now = types.SimpleNamespace(forward=Counter(), backward=Counter())  # if ProbeOperator
now = types.SimpleNamespace()  # unless ProbeOperator
