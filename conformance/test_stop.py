"""STOP: early stop.

A replay exists to give backward the values that it needs. It may end when the last of them is there; to the function
it is as if time had stopped.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


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


@clause(
    "STOP-03",
    MUST,
    tests=(Capability.EARLY_STOP_SETTING, Capability.NO_EARLY_STOP),
    needs=TORCH,
    profile=Profile.TORCH,
    settings=("none", "on", "off", "off-on", "on-off", "off-none"),
    early_stop=(True, False),
)
def test_a_setting_overrides_the_option(under_test, settings, early_stop):
    """The innermost setting around a call decides whether its replays end early; one of None leaves it to the option.

    Source: torch.utils.checkpoint, `set_checkpoint_early_stop`; pytorch/pytorch#96866.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")
    values = [{"none": None, "on": True, "off": False}[setting] for setting in settings.split("-")]

    def program(checkpoint, x):
        def call(values):
            if not values:
                return checkpoint.using(early_stop=early_stop)(
                    lambda x: tail(ops.add(ops.sin(ops.exp(head(x))), 1.0)), x
                )
            with under_test.api.set_checkpoint_early_stop(values[0]):
                return call(values[1:])

        return call(values)

    seen = under_test.run(program, under_test.array())

    stops = early_stop if values[-1] is None else values[-1]
    assert seen.backward[tail] == (0 if stops else 1), "another setting than the innermost one held"


@clause(
    "STOP-04",
    MUST,
    tests=Capability.EARLY_STOP_SETTING,
    needs=TORCH,
    profile=Profile.TORCH,
    around=("forward", "backward", "an exception"),
)
def test_a_setting_counts_where_forward_runs(under_test, around):
    """A setting counts for the forwards that run inside it: not for one that only backward sees, nor after it was left.

    Source: torch.utils.checkpoint, `set_checkpoint_early_stop`.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")
    off = lambda: under_test.api.set_checkpoint_early_stop(False)  # noqa: E731

    def program(checkpoint, x):
        def region(x):
            return tail(ops.add(ops.sin(ops.exp(head(x))), 1.0))

        if around == "forward":
            with off():
                return checkpoint(region, x)
        if around == "an exception":
            left = []
            try:
                with off():
                    raise KeyError
            except KeyError:
                left.append(True)
        return checkpoint(region, x)

    def backward(pull):
        if around == "backward":
            with off():
                return pull()
        return pull()

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[tail] == (1 if around == "forward" else 0), "the setting of forward did not hold"


@clause("STOP-05", SHOULD, tests=Capability.EARLY_STOP, needs=TORCH, profile=Profile.TORCH)
def test_an_operation_that_saves_its_input_last_is_not_executed_again(under_test):
    """Where the last value to find is the input of an operation, the replay ends without executing that operation.

    Not promised: this where the saved value needs no gradient; it could be a buffer that the operation fills.
    Source: torch.utils.checkpoint, `early_stop`; pytorch/pytorch#96866.
    """
    ops, probe, executed = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.sin(ops.multiply(x, 2.0)), x)

    def with_replay(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        class Executed(under_test.torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
                executed.append(str(operation))
                return operation(*args, **(kwargs or {}))

        executed.clear()
        with Executed():
            return pull()

    under_test.run(program, under_test.array(), replays=0, backward=backward)
    under_test.run(with_replay, under_test.array())

    assert not any("sin" in operation for operation in executed), "the last operation was executed again"


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


@clause("STOP-07", SHOULD, needs=(Fact.EAGER,))
def test_finally_blocks_run_in_the_replay(under_test):
    """Where a replay ends early, the function's `finally` blocks and context managers are left in order.

    Not promised: that a context manager sees no exception.
    Source: torch.utils.checkpoint, `early_stop`.
    """
    ops, probe, entered, left = under_test.ops, under_test.probe(), [], []

    def program(checkpoint, x):
        entered.clear()
        left.clear()

        def region(x):
            entered.append(True)
            try:
                return ops.add(ops.exp(ops.sin(probe(x))), 1.0)
            finally:
                left.append(True)

        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert len(left) == len(entered), "a `finally` block did not run in the replay"


@clause("STOP-08", MUST, tests=Capability.NO_EARLY_STOP, needs=(Fact.EAGER,))
def test_a_replay_to_the_end_restores_balance(under_test):
    """With `early_stop=False`, code at a function's end that undoes what its beginning did runs in the replay too.

    Not promised: that it runs where replays end early.
    Source: torch.utils.checkpoint, `early_stop`.
    """
    ops, probe, balance = under_test.ops, under_test.probe(), [0]

    def program(checkpoint, x):
        def region(x):
            balance[0] += 1
            y = ops.add(ops.exp(ops.sin(probe(x))), 1.0)
            balance[0] -= 1
            return y

        return checkpoint.using(early_stop=False)(region, x)

    under_test.run(program, under_test.array())

    assert balance[0] == 0, "the function's end did not run in the replay"


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


@clause(
    "STOP-11",
    MUST,
    tests=(Capability.DETERMINISM_CHECK, Capability.NO_EARLY_STOP),
    needs=(Fact.EAGER,),
    where=("before", "after"),
)
def test_more_saved_values_in_a_replay_to_the_end_are_no_wrong_gradient(under_test, where):
    """Where a replay that runs to the end saves more values than forward, the gradient is right or there is an error.

    Not promised: that a replay which ends early notices.
    Source: torch.utils.checkpoint, `early_stop`, `determinism_check`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y, is_replay = probe(x), under_test.phase == "backward"
            if is_replay and where == "before":
                ops.exp(ops.cos(y))
            y = ops.exp(ops.sin(y))
            if is_replay and where == "after":
                ops.exp(ops.cos(y))
            return y

        return checkpoint.using(early_stop=False)(region, x)

    under_test.attempt(program, under_test.array())


@clause(
    "STOP-12",
    SHOULD,
    tests=Capability.EARLY_STOP_SETTING,
    needs=(Fact.TORCH_NAMES, Fact.THREADS),
    profile=Profile.TORCH,
)
def test_a_setting_is_that_of_its_thread(under_test):
    """A setting that one thread has made does not hold for the regions that another thread calls.

    Source: torch.utils.checkpoint, `set_checkpoint_early_stop`.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")

    def program(checkpoint, x):
        def region(x):
            return tail(ops.add(ops.sin(ops.exp(head(x))), 1.0))

        with under_test.api.set_checkpoint_early_stop(False):
            (y,) = under_test.in_threads(lambda: checkpoint(region, x))
        return y

    seen = under_test.run(program, under_test.array())

    assert seen.backward[tail] == 0, "another thread's setting held"
