"""STOP: early stop.

A replay exists to give backward the values that it needs. It may end when the last of them is there; to the function
it is as if time had stopped.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause


@clause("STOP-01", MUST, tests=Capability.EARLY_STOP)
def test_a_replay_ends_after_the_last_saved_value(under_test):
    """A replay executes nothing after the last value that backward needs.

    Not promised: that code after it which restores balance (a lock's release) runs.
    Source: torch.utils.checkpoint, `early_stop`; pytorch/pytorch#96866.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(ops.exp(head(x)))  # the last operation that saves a value
            return tail(ops.add(y, 1.0))

        return checkpoint(region, x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[tail] == 0, "the replay ran on past the last saved value"


@clause("STOP-02", MUST, tests=Capability.NO_EARLY_STOP)
def test_early_stop_can_be_switched_off(under_test):
    """With `early_stop=False` a replay runs the function to its end.

    Source: torch.utils.checkpoint, `early_stop`; pytorch/pytorch#160781.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")

    def program(checkpoint, x):
        def region(x):
            return tail(ops.add(ops.sin(ops.exp(head(x))), 1.0))

        return checkpoint.using(early_stop=False)(region, x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[tail] == 1, "the replay did not run to the region's end"


@clause("STOP-06", MUST, needs=(Fact.EAGER,))
def test_a_function_cannot_catch_the_end_of_its_replay(under_test):
    """A function's own `except Exception` does not see that its replay ends.

    Source: torch.utils.checkpoint, `early_stop`.
    """
    ops, probe, caught = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            try:
                z = ops.exp(y)
            except Exception as error:
                caught.append(type(error).__name__)
                z = ops.cos(ops.multiply(y, y))
            return ops.add(z, 1.0)

        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert not caught, "the function saw an exception in its replay"


@clause("STOP-09", MUST, tests=Capability.NO_EARLY_STOP, early_stop=(True, False))
def test_results_do_not_depend_on_early_stop(under_test, early_stop):
    """A pure function's values and gradients are the same with and without early stop.

    Source: torch.utils.checkpoint, `early_stop`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, w):
            y = ops.tanh(ops.matmul(ops.sin(probe(x)), w))
            return ops.add(ops.multiply(y, y), 1.0), ops.sum(ops.exp(y))

        return checkpoint.using(early_stop=early_stop)(region, x, w)

    under_test.run(program, under_test.array(shape=(4, 3)), under_test.array(shape=(3, 2)))


@clause("STOP-10", MUST, needs=(Fact.GLOBAL_RANDOM,))
def test_a_replay_does_not_end_inside_an_operation(under_test):
    """A replay ends after an operation has produced what it saved, not before: also where it fills a saved buffer last.

    Source: pytorch/pytorch#193671.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.noisy_relu(ops.multiply(probe(x), 1.5)), x)

    under_test.run(program, under_test.array(-0.5, 1.0, -2.0, 0.25, -1.0, -0.125))
