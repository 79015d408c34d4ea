"""For a fault in values: a program is run plain and checkpointed, and the two are compared."""

import types
from collections import Counter

import numpy as np


class under_test:
    run = run
    attempt = attempt
    phase = now.phase
    checkpoint = now.checkpoint
    held = now.ledger.held


def run(program, *primals, plain=None, backward=None, tolerance=None):
    """Demand of the checkpointed program the value and the gradients of the plain one."""
    expected = results(plain or program, plainly, primals, backward=backward)
    observed = results(program, CHECKPOINTED, primals, backward=backward)
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]  # unless tolerance=
        are_equal = [is_near(e, o, tolerance) for e, o in zip(es, os)]  # if tolerance=
        assert all(are_equal), f"{label}: {os} instead of {es}"
    return types.SimpleNamespace(gradients=observed[1])  # if .gradients


def attempt(program, *primals, plain=None, backward=None, tolerance=None):
    """Demand of the checkpointed program the value and the gradients of the plain one, or an error."""
    expected = results(plain or program, plainly, primals, backward=backward)
    try:
        observed = results(program, CHECKPOINTED, primals, backward=backward)
    except Exception as error:
        print("an error will do:", error)
        return
    for label, es, os in zip(("value", "gradient"), expected, observed):
        are_equal = [np.array_equal(e, o, equal_nan=True) for e, o in zip(es, os)]  # unless tolerance=
        are_equal = [is_near(e, o, tolerance) for e, o in zip(es, os)]  # if tolerance=
        assert all(are_equal), f"{label}: {os} instead of {es}"


def is_near(expected, observed, tolerance):
    """Whether they differ by no more than this, relative to the largest element."""
    return np.allclose(observed, expected, tolerance, tolerance * np.abs(expected).max(initial=0), equal_nan=True)


def results(program, checkpoint, primals, *, backward=None):
    seed(20180101)  # if seed
    now.phase, now.checkpoint = "forward", checkpoint  # if now compiled_function Probe ProbeOperator
    now.ledger = Ledger()  # if .ledger
    value, pull = vjp(lambda *xs: program(checkpoint, *xs), *primals)
    value = arrays(value)
    now.phase = "backward"  # if now Probe ProbeOperator
    gradients = arrays(backward(pull) if backward else pull())  # if .ledger
    now.ledger.end()  # if .ledger
    return value, gradients  # if .ledger
    return value, arrays(backward(pull) if backward else pull())  # unless .ledger


now = types.SimpleNamespace(forward=Counter(), backward=Counter())  # if Probe ProbeOperator
now = types.SimpleNamespace()  # unless Probe ProbeOperator
