"""ERR: errors, and what explains them.

An exception of the function is the caller's: checkpointing passes it on as it is, in forward and in backward. An error
of checkpointing itself says what differs and how to learn more.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

DETERMINISM_CHECK = Capability.DETERMINISM_CHECK
TORCH = (Fact.TORCH_NAMES, Fact.EAGER)


@clause(
    "ERR-01",
    MUST,
    profile=Profile.CORE,
    kind=("ValueError", "StopIteration", "KeyboardInterrupt", "SystemExit", "GeneratorExit"),
)
def test_an_exception_in_forward_reaches_the_caller_unchanged(under_test, kind):
    """An exception of the function in forward reaches the caller as it is; the next region is not affected.

    Source: torch.utils.checkpoint; pytorch/pytorch#37874.
    """
    ops, probe, caught = under_test.ops, under_test.probe(), []
    kinds = {
        "ValueError": ValueError,
        "StopIteration": StopIteration,
        "KeyboardInterrupt": KeyboardInterrupt,
        "SystemExit": SystemExit,
        "GeneratorExit": GeneratorExit,
    }
    error = kinds[kind]("the function fails")

    def program(checkpoint, x):
        def failing(x):
            ops.exp(ops.sin(x))
            raise error

        y = ops.sin(x)
        try:
            checkpoint(failing, y)
        except BaseException as found:
            caught.append(found)
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), ops.exp(y))

    under_test.run(program, under_test.array())

    assert caught[-1] is error, "another exception reached the caller"


@clause("ERR-02", MUST, needs=(Fact.EAGER,), kind=("KeyError", "KeyboardInterrupt"))
def test_an_exception_in_a_replay_leaves_backward_unchanged(under_test, kind):
    """An exception that the function raises in a replay leaves backward with its type and its message.

    Source: torch.utils.checkpoint.
    """
    ops, failing, probe = under_test.ops, under_test.probe("failing"), under_test.probe()
    kinds = {"KeyError": KeyError, "KeyboardInterrupt": KeyboardInterrupt}

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(failing(x))
            if under_test.phase == "backward":
                raise kinds[kind]("the replay fails")
            return ops.exp(y)

        return checkpoint(region, x)

    def without(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    seen = under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())

    assert type(seen.error) is kinds[kind], "an exception of another type left backward"
    assert seen.error.args == ("the replay fails",), "the exception's message was changed"


@clause("ERR-03", MUST, tests=DETERMINISM_CHECK, needs=TORCH, profile=Profile.TORCH, what=("number", "dtype"))
def test_a_replay_that_differs_is_a_checkpoint_error(under_test, what):
    """A replay that saves other values than forward ends backward with a CheckpointError.

    Source: torch.utils.checkpoint, `CheckpointError`; pytorch/pytorch#102241.
    """
    ops, probe, error = under_test.ops, under_test.probe(), under_test.api.CheckpointError

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            if under_test.phase == "forward":
                return ops.exp(ops.multiply(y, y))
            return ops.multiply(y, 2.0) if what == "number" else ops.exp(ops.astype(ops.multiply(y, y), "float32"))

        return checkpoint(region, x)

    def backward(pull):
        pull()  # where nothing is noticed, its value is that of another computation

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert isinstance(seen.error, error), "no CheckpointError left backward"


@clause("ERR-04", MUST, tests=(DETERMINISM_CHECK, Capability.DEBUG), needs=TORCH, profile=Profile.TORCH)
def test_the_error_says_how_to_learn_more(under_test):
    """The error about a replay that differs names the option that shows the operations of both executions.

    Source: torch.utils.checkpoint, `debug`; hiyouga/LlamaFactory#6438.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            return ops.multiply(y, 2.0) if under_test.phase == "backward" else ops.exp(ops.multiply(y, y))

        return checkpoint(region, x)

    def backward(pull):
        pull()

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None, "a replay that saves fewer values passed unnoticed"
    assert "debug" in str(seen.error), "the error does not name debug"


@clause("ERR-05", MUST, tests=Capability.DEBUG, needs=TORCH, profile=Profile.TORCH)
def test_debug_shows_the_operations_and_where_they_were_called(under_test):
    """With debug, the error about a replay that differs lists the operations of both executions and where they were
    called, and has the plain error as its cause.

    Source: torch.utils.checkpoint, `debug`; pytorch/pytorch#105031.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        y = ops.sin(probe(x))
        return ops.tanh(y) if under_test.phase == "backward" else ops.exp(ops.cos(y))

    def program(checkpoint, x):
        return checkpoint.using(debug=True)(region, x)

    def backward(pull):
        pull()

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None, "a replay that saves fewer values passed unnoticed"
    text = str(seen.error)
    assert "cos" in text, "an operation of forward is missing"
    assert "tanh" in text, "an operation of the replay is missing"
    assert region.__code__.co_filename in text, "the place of the call is missing"
    assert seen.error.__cause__ is not None, "the plain error is not the cause"


@clause(
    "ERR-06",
    MUST,
    tests=Capability.DEBUG,
    needs=TORCH,
    profile=Profile.TORCH,
    option=(False, True),
    setting=(None, False, True),
)
def test_the_debug_setting_overrides_the_option(under_test, option, setting):
    """`set_checkpoint_debug_enabled` overrides the option for the calls inside; None leaves it to the option.

    Source: torch.utils.checkpoint, `set_checkpoint_debug_enabled`.
    """
    ops, probe = under_test.ops, under_test.probe()
    set_debug = under_test.api.set_checkpoint_debug_enabled

    def region(x):
        y = ops.sin(probe(x))
        return ops.tanh(y) if under_test.phase == "backward" else ops.exp(ops.cos(y))

    def program(checkpoint, x):
        with set_debug(not setting), set_debug(setting):
            return checkpoint.using(debug=option)(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    def backward(pull):
        pull()

    seen = under_test.attempt(program, under_test.array(), backward=backward)
    short = under_test.attempt(without, under_test.array(), backward=backward)

    is_on = option if setting is None else setting
    assert seen.error is not None, "a replay that saves fewer values passed unnoticed"
    assert (str(seen.error) != str(short.error)) == is_on, "debug was on where it should be off, or the reverse"


@clause("ERR-07", MUST, tests=Capability.DEBUG, needs=(Fact.TORCH_NAMES, Fact.RETAIN), profile=Profile.TORCH)
def test_debug_changes_no_value_in_any_backward(under_test):
    """With debug, values and gradients are those of the plain run, in a second backward too.

    Source: torch.utils.checkpoint, `debug`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint.using(debug=True)(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        return pull(retain=True), pull()

    under_test.run(program, under_test.array(), backward=backward)


@clause("ERR-08", MUST, tests=Capability.CONTEXT_FN, needs=(Fact.EAGER,))
def test_a_replay_context_cannot_hide_that_the_replay_failed(under_test):
    """Where the replay context suppresses the function's exception before all was recomputed, backward raises.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe = under_test.ops, under_test.probe()

    class Context:
        def __enter__(self):
            pass

        def __exit__(self, kind, value, trace):
            return kind is KeyError

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            if under_test.phase == "backward":
                raise KeyError("the replay fails")
            return ops.exp(y)

        return checkpoint.using(context_fn=lambda: (Context(), Context()))(region, x)

    def backward(pull):
        pull()

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None, "a replay that failed passed for a whole one"


@clause("ERR-09", MUST, tests=DETERMINISM_CHECK, needs=(Fact.EAGER,))
def test_an_exception_that_the_function_handles_is_no_wrong_gradient(under_test):
    """Where the function handles an exception of the replay alone and goes another way, the gradient is right or there
    is an error.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe, found = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            try:
                if under_test.phase == "backward":
                    raise MemoryError("in the replay only")
                return ops.exp(ops.multiply(y, y))
            except MemoryError:
                return ops.multiply(y, 2.0)

        return checkpoint(region, x)

    def backward(pull):
        found.append(under_test.numpy(pull()[0]).tolist())

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None or found[-1] == found[0], "the gradient is that of another computation"


@clause("ERR-10", MUST, needs=(Fact.EAGER, Fact.RETAIN))
def test_backward_after_a_failed_replay_is_right_or_raises(under_test):
    """After a replay failed, another backward over the same graph gives the right gradients or raises.

    Source: torch.utils.checkpoint.
    """
    ops, probe, failed, found = under_test.ops, under_test.probe(), [], []

    def program(checkpoint, x):
        failed.clear()

        def region(x):
            y = ops.sin(probe(x))
            if under_test.phase == "backward" and not failed:
                failed.append(True)
                raise KeyError("the first replay fails")
            return ops.exp(y)

        return checkpoint(region, x)

    def backward(pull):
        try:
            pull(retain=True)
        except KeyError:
            found.append(True)
        return pull()

    under_test.attempt(program, under_test.array(), backward=backward)


@clause("ERR-11", MAY, needs=(Fact.EAGER, Fact.RETAIN))
def test_backward_works_again_after_a_failed_replay(under_test):
    """After a replay failed for a passing reason, another backward over the same graph works.

    Source: torch.utils.checkpoint.
    """
    ops, probe, failed, found = under_test.ops, under_test.probe(), [], []

    def program(checkpoint, x):
        failed.clear()

        def region(x):
            y = ops.sin(probe(x))
            if under_test.phase == "backward" and not failed:
                failed.append(True)
                raise KeyError("the first replay fails")
            return ops.exp(y)

        return checkpoint(region, x)

    def backward(pull):
        try:
            pull(retain=True)
        except KeyError:
            found.append(True)
        return pull()

    under_test.run(program, under_test.array(), backward=backward)


@clause("ERR-12", SHOULD, tests=DETERMINISM_CHECK, needs=TORCH, profile=Profile.TORCH, what=("number", "dtype"))
def test_the_error_says_what_differs(under_test, what):
    """The error about a replay that differs gives both numbers of saved values, or both dtypes.

    Source: torch.utils.checkpoint, `CheckpointError`; pytorch/pytorch#102241; hiyouga/LlamaFactory#6438.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.cos(ops.sin(probe(x))))
            if under_test.phase == "forward":
                return ops.exp(y)
            return ops.add(y, y) if what == "number" else ops.exp(ops.astype(y, "float32"))

        return checkpoint(region, x)

    def backward(pull):
        pull()

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None, "a replay that saves other values passed unnoticed"
    expected = {"4", "3"} if what == "number" else {"float64", "float32"}
    assert all(word in str(seen.error) for word in expected), "the error does not say what differs"
