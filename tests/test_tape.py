"""The tape is right: its derivatives, its checkpoint, and what it lets go of. Controls are only as good as it is."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tape
from tape import CheckpointError, Node, Options, TapeHost, Variable, backward, checkpoint

HOST = TapeHost()
OPS = HOST.ops

X = np.linspace(0.2, 0.9, 6).reshape(2, 3)
ROW = np.array([0.5, -1.0, 2.0])

FUNCTIONS: dict[str, Callable[[Variable, Variable], Variable]] = {
    "add": lambda x, y: OPS.add(x, y),
    "subtract": lambda x, y: OPS.subtract(y, x),
    "multiply": lambda x, y: OPS.multiply(x, y),
    "divide": lambda x, y: OPS.divide(x, OPS.add(OPS.square(y), 1.0)),
    "negative": lambda x, y: OPS.negative(OPS.multiply(x, y)),
    "square": lambda x, y: OPS.square(OPS.add(x, y)),
    "sqrt": lambda x, y: OPS.sqrt(OPS.multiply(x, OPS.square(y))),
    "exp": lambda x, y: OPS.exp(OPS.multiply(x, y)),
    "log": lambda x, y: OPS.log(OPS.add(x, OPS.square(y))),
    "sin": lambda x, y: OPS.sin(OPS.multiply(x, y)),
    "cos": lambda x, y: OPS.cos(OPS.multiply(x, y)),
    "tanh": lambda x, y: OPS.tanh(OPS.multiply(x, y)),
    "sigmoid": lambda x, y: OPS.sigmoid(OPS.multiply(x, y)),
    "abs": lambda x, y: OPS.abs(OPS.multiply(x, y)),
    "relu": lambda x, y: OPS.relu(OPS.multiply(x, y)),
    "where": lambda x, y: OPS.where(Variable(X > 0.5), OPS.square(x), OPS.sin(y)),
    "matmul": lambda x, y: OPS.matmul(x, OPS.reshape(OPS.square(y), (3, 1))),
    "sum": lambda x, y: OPS.sum(OPS.square(OPS.multiply(x, y)), axis=1),
    "mean": lambda x, y: OPS.mean(OPS.square(OPS.multiply(x, y))),
    "reshape": lambda x, y: OPS.reshape(OPS.square(OPS.multiply(x, y)), (3, 2)),
    "permute_dims": lambda x, y: OPS.permute_dims(OPS.square(OPS.multiply(x, y)), (1, 0)),
    "expand_dims": lambda x, y: OPS.expand_dims(OPS.square(OPS.multiply(x, y)), 1),
    "broadcast_to": lambda x, y: OPS.broadcast_to(OPS.square(OPS.multiply(x, y)), (2, 2, 3)),
    "concat": lambda x, y: OPS.concat([x, OPS.multiply(x, y), OPS.square(x)]),
    "dropout": lambda x, y: OPS.dropout(OPS.multiply(x, y), 0.5),
    "noisy_relu": lambda x, y: OPS.noisy_relu(OPS.multiply(x, y)),
    "custom": lambda x, y: OPS.custom(OPS.sin, lambda g, v: OPS.multiply(g, OPS.cos(v)))(OPS.multiply(x, y)),
    "astype": lambda x, y: OPS.astype(OPS.multiply(OPS.astype(x, "float64"), y), "float64"),
}

WEIGHTS = np.random.default_rng(1).uniform(0.5, 1.5, 32)


def scalar(function: Callable[..., Variable], *inputs: Variable) -> Variable:
    """A weighted sum of a function's values, always with the same random numbers."""
    HOST.seed(3)
    y = function(*inputs)
    weights = Variable(WEIGHTS[: y.values.size].reshape(y.values.shape))
    return tape.sum_(OPS.multiply(y, weights))


def leaves(*values: np.ndarray[Any, Any]) -> list[Variable]:
    return [Variable(v.copy(), Node()) for v in values]


def gradients(function: Callable[..., Variable], *inputs: Variable, **how: bool) -> list[Variable]:
    y = scalar(function, *inputs)
    found = backward([y], [HOST.ones_like(y)], [x.node for x in inputs if x.node is not None], **how)
    return [g or Variable(np.zeros_like(x.values)) for g, x in zip(found, inputs, strict=True)]


def by_differences(function: Callable[..., Variable], *values: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """The naive truth: central differences of the weighted sum."""
    slopes = []
    for position, value in enumerate(values):
        slope = np.zeros_like(value)
        for index in np.ndindex(value.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [v.copy() for v in values]
                moved[position][index] += step
                ends.append(float(scalar(function, *map(Variable, moved)).values))
            slope[index] = (ends[0] - ends[1]) / 2e-6
        slopes.append(slope)
    return slopes


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_those_of_differences(name: str) -> None:
    found = gradients(FUNCTIONS[name], *leaves(X, ROW))

    for gradient, truth in zip(found, by_differences(FUNCTIONS[name], X, ROW), strict=True):
        np.testing.assert_allclose(gradient.values, truth, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - {"noisy_relu", "dropout"}))
def test_gradients_of_gradients_are_those_of_differences(name: str) -> None:
    def slope(x: Variable, y: Variable) -> Variable:
        x = x if x.node else Variable(x.values, Node())
        (found,) = gradients(lambda x: FUNCTIONS[name](x, y), x, retain=True, record=True)
        return found

    found = gradients(slope, *leaves(X, ROW))

    for gradient, truth in zip(found, by_differences(slope, X, ROW), strict=True):
        np.testing.assert_allclose(gradient.values, truth, rtol=1e-5, atol=1e-7)


def test_the_operations_of_the_host_are_all_tested() -> None:
    without_gradient = {"less", "no_grad", "ones_like", "stop_gradient", "uniform_like", "zeros_like"}

    assert set(tape.OPERATIONS) == set(FUNCTIONS) | without_gradient


def test_no_gradient_goes_through_what_is_cut_off() -> None:
    def cut(x: Variable, y: Variable) -> Variable:
        with OPS.no_grad():
            unrecorded = OPS.square(x)
        return OPS.add(OPS.multiply(OPS.stop_gradient(OPS.square(x)), y), unrecorded)

    found, other = gradients(cut, *leaves(X, ROW))

    assert not found.values.any()
    assert other.values.any()


def checkpointed(function: Callable[..., Variable], **options: Any) -> Callable[..., Variable]:
    return lambda *inputs: checkpoint(function, inputs, {}, Options(**options))


@pytest.mark.parametrize("options", [{}, {"early_stop": False}, {"save": ("multiply", "is_dropped")}], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_checkpoint_changes_no_bit(name: str, options: dict[str, Any]) -> None:
    plain = gradients(FUNCTIONS[name], *leaves(X, ROW))

    found = gradients(checkpointed(FUNCTIONS[name], **options), *leaves(X, ROW))

    assert [g.values.tobytes() for g in found] == [g.values.tobytes() for g in plain]


def test_a_gradient_has_its_inputs_dtype() -> None:
    narrow, wide = leaves(ROW.astype("float32"), ROW)

    found = gradients(lambda x, y: OPS.multiply(x, y), narrow, wide)

    assert [g.values.dtype.name for g in found] == ["float32", "float64"]


def test_a_second_backward_needs_the_first_to_keep_the_graph() -> None:
    (x,) = leaves(ROW)
    assert x.node is not None
    y = tape.sum_(OPS.sin(x))
    ones = [HOST.ones_like(y)]

    backward([y], ones, [x.node], retain=True)
    backward([y], ones, [x.node])
    with pytest.raises(RuntimeError, match="freed by an earlier backward"):
        backward([y], ones, [x.node])


def test_a_frame_dies_with_the_graph_without_a_garbage_collection() -> None:
    class Held:
        pass

    held = Held()
    alive = weakref.ref(held)

    def region(x: Variable, held: Held = held) -> Variable:
        return tape.exp(tape.sin(x))

    (x,) = leaves(ROW)
    y = checkpoint(region, (x,), {}, Options())
    gc.collect()
    gc.disable()
    try:
        del region, held
        assert alive() is not None
        del y
        assert alive() is None
    finally:
        gc.enable()


def test_a_replay_that_is_another_computation_is_noticed() -> None:
    for change in (lambda x: OPS.reshape(x, (3, 1)), lambda x: OPS.astype(x, "float32")):
        executions = 0

        def region(x: Variable, change: Callable[[Variable], Variable] = change) -> Variable:
            nonlocal executions
            executions += 1
            return tape.sin(x if executions == 1 else change(x))

        with pytest.raises(CheckpointError, match="saved value 0 was"):
            gradients(checkpointed(region), *leaves(ROW))


@pytest.mark.parametrize("surplus", [tape.exp, tape.tanh])
def test_a_replay_that_confuses_kept_results_is_noticed(surplus: Callable[[Variable], Variable]) -> None:
    executions = 0

    def region(x: Variable) -> Variable:
        nonlocal executions
        executions += 1
        if executions > 1:
            surplus(x)
        return tape.sin(tape.exp(tape.cos(tape.exp(tape.sin(x)))))

    with pytest.raises(CheckpointError, match="kept results belong to operations"):
        gradients(checkpointed(region, save=("exp", "tanh")), *leaves(ROW))


@pytest.mark.parametrize("early_stop", [True, False])
def test_a_gradient_inside_a_region_is_replayed_once(early_stop: bool) -> None:
    executions = 0

    def region(x: Variable) -> Variable:
        nonlocal executions
        executions += 1
        return tape.multiply(HOST.gradient(lambda x: tape.exp(tape.sin(x)))(x), tape.cos(x))

    plain = gradients(region, *leaves(ROW))
    executions = 0
    found = gradients(checkpointed(region, early_stop=early_stop), *leaves(ROW))

    assert found[0].values.tobytes() == plain[0].values.tobytes()
    assert executions == 3  # forward; the gradient inside it, which stops early; backward


def test_three_thousand_regions_are_no_recursion() -> None:
    def chain(x: Variable) -> Variable:
        for _ in range(3000):
            x = checkpoint(OPS.sin, (x,), {}, Options())
        return x

    (gradient,) = gradients(chain, *leaves(ROW))

    assert np.isfinite(gradient.values).all()


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="unknown"):
        checkpointed(OPS.sin, unknown=1)(Variable(ROW))
    with pytest.raises(ValueError, match="determinism_check is 'maybe'"):
        Options(determinism_check="maybe")


def test_what_ends_a_replay_is_no_exception_that_a_region_handles() -> None:
    assert not issubclass(tape.Stop, Exception)
    assert dataclasses.is_dataclass(Options)
