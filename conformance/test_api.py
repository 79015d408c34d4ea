"""API: the entry point, its options and its contexts.

`checkpoint(function, *args, **options)` calls the function and returns what it returns. Options steer the checkpoint,
never the function; what a form cannot do with an option, it says. A pair of contexts surrounds forward and each replay.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, Profile, clause

CONTEXT_FN = Capability.CONTEXT_FN
TORCH = (Fact.TORCH_NAMES,)


@clause(
    "API-01",
    MUST,
    needs=TORCH,
    profile=Profile.TORCH,
    option=("early_stop", "preserve_rng_state", "determinism_check", "debug"),
)
def test_an_option_at_its_default_changes_nothing(under_test, option):
    """Each option is accepted at its default value, and then the region runs as without it.

    Source: torch.utils.checkpoint, signature of `checkpoint`.
    """
    ops, probe = under_test.ops, under_test.probe()
    defaults = {"early_stop": True, "preserve_rng_state": True, "determinism_check": "default", "debug": False}

    def program(checkpoint, x):
        region = lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))  # noqa: E731
        return checkpoint.using(**{option: defaults[option]})(region, x)

    seen = under_test.run(program, under_test.array(shape=(64,)))

    assert seen.forward[probe] == 1, "forward ran the region more than once"
    assert seen.backward[probe] == 1, "backward ran the region more than once"


@clause("API-02", MUST, tests=Capability.KEYWORDS, needs=TORCH, profile=Profile.TORCH)
def test_options_do_not_reach_the_function(under_test):
    """Options that are given in the call are not keyword arguments of the function.

    Source: torch.utils.checkpoint, signature of `checkpoint`.
    """
    ops, probe, received = under_test.ops, under_test.probe(), set()

    def program(checkpoint, x):
        def region(x, **given):
            received.update(given)
            return ops.exp(ops.multiply(ops.sin(probe(x)), given["scale"]))

        options = {"early_stop": True, "preserve_rng_state": True, "determinism_check": "default", "debug": False}
        return checkpoint.using(**options)(region, x, scale=2.0)

    under_test.run(program, under_test.array())

    assert received == {"scale"}, "the function received an option"


@clause("API-03", MUST, tests=Capability.REENTRANT, needs=TORCH, profile=Profile.TORCH)
def test_a_call_that_chooses_no_form_warns(under_test):
    """Where there are two forms, a call that chooses neither warns, once, and is right.

    Not promised: which form it takes.
    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#160534.
    """
    ops, probe, checkpoint_, found = under_test.ops, under_test.probe(), under_test.api.checkpoint, []

    def program(checkpoint, x):
        with under_test.warnings() as warned:
            y = checkpoint.through(checkpoint_)(lambda x: ops.exp(ops.sin(probe(x))), x)
        found.extend(w for w in warned if "use_reentrant" in w.text)
        return y

    under_test.run(program, under_test.array())

    assert len(found) == 1, "there was no warning, or more than one"


@clause("API-04", SHOULD, tests=Capability.REENTRANT, needs=TORCH, profile=Profile.TORCH)
def test_the_warning_about_the_form_points_to_the_call(under_test):
    """The warning about a call that chooses no form names the line of that call.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#189411.
    """
    ops, probe, checkpoint_, found = under_test.ops, under_test.probe(), under_test.api.checkpoint, []

    def program(checkpoint, x):
        with under_test.warnings() as warned:
            y = checkpoint.through(checkpoint_)(lambda x: ops.exp(ops.sin(probe(x))), x)
        found.extend(w for w in warned if "use_reentrant" in w.text)
        return y

    under_test.run(program, under_test.array())

    assert all(w.is_at_call for w in found), "the warning points into the implementation"


@clause("API-05", MUST)
def test_a_keyword_argument_is_used_or_refused(under_test):
    """A keyword argument for the function takes effect, or the call raises; it is never dropped.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x, scale=1.0):
        return ops.exp(ops.multiply(ops.sin(probe(x)), scale))

    def program(checkpoint, x):
        return checkpoint(region, x, scale=2.0)

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause("API-06", MUST, needs=(Fact.EAGER,))
def test_contexts_are_entered_or_refused(under_test):
    """The contexts of `context_fn` are entered, or the call raises; they are never passed over.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe, entered = under_test.ops, under_test.probe(), []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *exc):
            pass

    def region(x):
        return ops.exp(ops.sin(probe(x)))

    def program(checkpoint, x):
        return checkpoint.using(context_fn=lambda: (Context("forward"), Context("replay")))(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    seen = under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())

    assert seen.error is not None or entered == ["forward", "replay"], "a context was passed over"


@clause("API-07", SHOULD, tests=Capability.REENTRANT, needs=TORCH, profile=Profile.TORCH)
def test_a_form_that_compares_nothing_refuses_unknown_checks_too(under_test):
    """Also the form without a determinism check refuses an unknown value of `determinism_check`.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.exp(ops.sin(probe(x)))

    def program(checkpoint, x):
        return checkpoint.using(determinism_check="bogus")(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    seen = under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())

    assert isinstance(seen.error, ValueError), "an unknown check was accepted"


@clause("API-08", MUST, tests=Capability.DETERMINISM_CHECK, needs=TORCH, profile=Profile.TORCH)
def test_an_unknown_determinism_check_is_refused_before_the_function_runs(under_test):
    """An unknown value of `determinism_check` is a ValueError, raised before the function runs.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe, refused = under_test.ops, under_test.probe("refused"), under_test.probe("other")

    def program(checkpoint, x):
        return checkpoint.using(determinism_check="bogus")(lambda x: ops.exp(ops.sin(refused(x))), x)

    def without(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    seen = under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())

    assert isinstance(seen.error, ValueError), "an unknown check was accepted"
    assert seen.forward.get(refused, 0) == 0, "the function ran before the option was refused"


@clause(
    "API-09",
    MUST,
    tests=(CONTEXT_FN, Capability.DEBUG),
    needs=TORCH,
    profile=Profile.TORCH,
    how=("option", "setting"),
)
def test_debug_and_contexts_go_together_or_are_refused(under_test, how):
    """Where debug, as an option or by the setting, meets a `context_fn`, both contexts are entered or the call raises.

    Source: torch.utils.checkpoint, `debug`.
    """
    ops, probe, entered = under_test.ops, under_test.probe(), []
    set_debug = under_test.api.set_checkpoint_debug_enabled

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *exc):
            pass

    def region(x):
        return ops.exp(ops.sin(probe(x)))

    def program(checkpoint, x):
        checkpoint = checkpoint.using(context_fn=lambda: (Context("forward"), Context("replay")))
        if how == "option":
            return checkpoint.using(debug=True)(region, x)
        with set_debug(True):
            return checkpoint(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    seen = under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())

    assert seen.error is not None or entered == ["forward", "replay"], "a context was passed over"


@clause("API-10", MUST, needs=(Fact.TORCH_NAMES, Fact.GRADIENT_FLAGS, Fact.RELEASE), profile=Profile.TORCH)
def test_where_gradients_are_off_it_is_a_plain_call(under_test):
    """Where gradients are switched off, the function runs once, its result needs no gradient, and nothing is kept.

    Source: torch.utils.checkpoint.
    """
    ops, off, on = under_test.ops, under_test.probe("off"), under_test.probe("on")
    flags, alive = [], []

    class Captured:
        scale = 2.0

    def program(checkpoint, x):
        captured = Captured()
        alive[:] = [under_test.watch(captured)]
        with under_test.torch.no_grad():
            y = checkpoint(lambda x, c=captured: ops.exp(ops.multiply(ops.sin(off(x)), c.scale)), x)
        flags.append(under_test.needs_gradient(y))
        del captured
        alive.append(alive[0]())
        return checkpoint(lambda x, y: ops.exp(ops.multiply(ops.sin(on(x)), y)), x, y)

    seen = under_test.run(program, under_test.array())

    assert seen.forward[off] == 1, "the function did not run exactly once"
    assert seen.backward[off] == 0, "what needs no gradient was replayed"
    assert not any(flags), "the result needs a gradient"
    assert not alive[1], "the function is kept"


@clause("API-11", MUST, profile=Profile.CORE, results=("one", "two", "nested"))
def test_forward_calls_the_function_exactly_once(under_test, results):
    """The call runs the function exactly once, whatever it returns, and also where its result is not differentiated.

    Source: torch.utils.checkpoint.
    """
    ops, probe, unused = under_test.ops, under_test.probe(), under_test.probe("unused")

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.sin(probe(x)))
            return (y, ops.cos(y)) if results == "two" else y

        checkpoint(lambda x: ops.exp(unused(x)), x)
        return checkpoint(lambda x: checkpoint(region, x), x) if results == "nested" else checkpoint(region, x)

    seen = under_test.run(program, under_test.array())

    assert seen.forward[probe] == 1, "forward did not run the function exactly once"
    assert seen.forward[unused] == 1, "forward did not run exactly once what is not differentiated"


@clause("API-12", MUST, tests=CONTEXT_FN, needs=(Fact.EAGER, Fact.RETAIN))
def test_context_fn_is_called_once_a_call(under_test):
    """`context_fn` is called once for each call of the region, in forward, however often backward replays it.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe, phases = under_test.ops, under_test.probe(), []

    class Context:
        def __enter__(self):
            pass

        def __exit__(self, *exc):
            pass

    def program(checkpoint, x):
        def contexts():
            phases.append(under_test.phase)
            return Context(), Context()

        return checkpoint.using(context_fn=contexts)(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        return pull(retain=True), pull()

    under_test.run(program, under_test.array(), backward=backward)

    assert phases == ["forward"], "context_fn was not called exactly once, in forward"


@clause("API-13", MUST, tests=CONTEXT_FN, needs=(Fact.EAGER, Fact.RETAIN))
def test_forward_runs_under_the_first_context_and_each_replay_under_the_second(under_test):
    """The first context surrounds forward, the second one each replay, and neither anything else.

    Source: torch.utils.checkpoint, `context_fn`; NVIDIA/Megatron-LM#7538.
    """
    ops, probe, active, inside, outside = under_test.ops, under_test.probe(), [], [], []

    class Context:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            active.append(self.name)

        def __exit__(self, *exc):
            active.remove(self.name)

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            inside.append([under_test.phase, *active])
            return ops.exp(y)

        inside.clear()
        y = checkpoint.using(context_fn=lambda: (Context("first"), Context("second")))(region, x)
        outside.extend(active)
        return y

    def backward(pull):
        gradients = pull(retain=True), pull()
        outside.extend(active)
        return gradients

    under_test.run(program, under_test.array(), backward=backward)

    assert inside[0] == ["forward", "first"], "forward did not run under the first context alone"
    assert all(place == ["backward", "second"] for place in inside[1:]), (
        "a replay did not run under the second context alone"
    )
    assert not outside, "a context was left open"


@clause("API-14", MUST, tests=CONTEXT_FN, needs=(Fact.EAGER,))
def test_the_forward_context_sees_the_exception_of_the_function(under_test):
    """Where the function raises in forward, its context is left with that exception, which then reaches the caller.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe, left, caught = under_test.ops, under_test.probe(), [], []
    error = KeyError("the function fails")

    class Context:
        def __enter__(self):
            pass

        def __exit__(self, kind, value, trace):
            left.append(value)

    def program(checkpoint, x):
        def failing(x):
            raise error

        checkpoint = checkpoint.using(context_fn=lambda: (Context(), Context()))
        try:
            checkpoint(failing, x)
        except KeyError as found:
            caught.append(found)
        left_then = len(left)
        y = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
        del left[left_then:]
        return y

    under_test.run(program, under_test.array())

    assert caught[-1] is error, "the exception was replaced"
    assert left[:1] == [error], "the context was left without the exception"


@clause("API-15", MUST, tests=CONTEXT_FN, needs=(Fact.EAGER,))
def test_a_forward_context_cannot_suppress_the_exception(under_test):
    """Where the forward context suppresses the function's exception, the call raises, since it has no result.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe, raised = under_test.ops, under_test.probe(), []

    class Context:
        def __enter__(self):
            pass

        def __exit__(self, kind, value, trace):
            return kind is KeyError

    def program(checkpoint, x):
        def failing(x):
            raise KeyError("the function fails")

        checkpoint = checkpoint.using(context_fn=lambda: (Context(), Context()))
        try:
            checkpoint(failing, x)
        except Exception:
            raised.append(True)
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())

    # Two plain runs and the checkpointed one.
    assert len(raised) == 3, "a call without a result returned"


@clause(
    "API-16",
    SHOULD,
    tests=(CONTEXT_FN, Capability.EARLY_STOP_SETTING),
    needs=(Fact.TORCH_NAMES, Fact.RETAIN),
    profile=Profile.TORCH,
)
def test_a_context_written_as_a_generator_serves_several_replays(under_test):
    """A replay context that is written as a generator, which can be entered once only, serves a second backward too.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe, generator = under_test.ops, under_test.probe(), under_test.api.set_checkpoint_early_stop

    def program(checkpoint, x):
        checkpoint = checkpoint.using(context_fn=lambda: (generator(True), generator(True)))
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        return pull(retain=True), pull()

    under_test.run(program, under_test.array(), backward=backward)


@clause("API-17", SHOULD, tests=CONTEXT_FN, needs=(Fact.EAGER,))
def test_the_replay_context_of_a_successful_replay_sees_no_exception(under_test):
    """A replay that had all it needed is a success to its context, also where it ended early.

    Source: torch.utils.checkpoint, `context_fn`, `early_stop`.
    """
    ops, probe, left = under_test.ops, under_test.probe(), []

    class Context:
        def __enter__(self):
            pass

        def __exit__(self, kind, value, trace):
            left.append(kind)

    def program(checkpoint, x):
        checkpoint = checkpoint.using(context_fn=lambda: (Context(), Context()))
        return checkpoint(lambda x: ops.add(ops.exp(ops.sin(probe(x))), 1.0), x)

    under_test.run(program, under_test.array())

    assert left == [None, None], "a context was left with an exception"


@clause("API-18", MUST, tests=Capability.CAPTURED_ONLY)
def test_a_function_without_arguments_can_be_checkpointed(under_test):
    """A function without arguments gives gradients to what it captures.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint(lambda: ops.exp(ops.sin(probe(x))))

    under_test.run(program, under_test.array())


@clause("API-19", MUST, wrong=("too many arguments", "too few arguments", "no function"))
def test_a_call_that_does_not_fit_the_function_raises(under_test, wrong):
    """Where the plain call raises, for a wrong number of arguments or no function at all, so does the checkpointed one.

    Not promised: the type of the exception.
    Source: torch.utils.checkpoint.
    """
    ops, probe, raised = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def region(x):
            return ops.exp(ops.sin(probe(x)))

        try:
            if wrong == "too many arguments":
                checkpoint(region, x, x)
            elif wrong == "too few arguments":
                checkpoint(region)
            else:
                checkpoint(None, x)
        except Exception:
            raised.append(True)
        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    # Two plain runs and the checkpointed one.
    assert len(raised) == 3, "the call was accepted"


@clause("API-20", MUST, needs=(Fact.EAGER,))
def test_a_generator_function_is_right_or_refused(under_test):
    """A function that is a generator has right values and gradients, or the call raises.

    Not promised: that anything in it is recomputed.
    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            yield ops.exp(y)
            yield ops.cos(y)

        first, second = checkpoint(region, x)
        # The sum keeps a gradient that the region loses from being an error.
        return ops.add(ops.multiply(first, second), x)

    def ordinary(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.attempt(program, under_test.array(), replays=0)
    under_test.run(ordinary, under_test.array())


@clause("API-21", MUST, tests=Capability.DETERMINISM_CHECK, needs=TORCH, profile=Profile.TORCH)
def test_the_error_of_a_checkpoint_is_a_runtime_error(under_test):
    """There is a class of exceptions `CheckpointError`, which is a RuntimeError.

    Source: torch.utils.checkpoint, `CheckpointError`.
    """
    ops, probe, error = under_test.ops, under_test.probe(), under_test.api.CheckpointError

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())

    assert issubclass(error, RuntimeError), "CheckpointError is no RuntimeError"


@clause("API-22", MUST, tests=CONTEXT_FN, needs=TORCH, profile=Profile.TORCH)
def test_where_gradients_are_off_no_context_is_entered(under_test):
    """Where gradients are switched off, the call is a plain one: it enters no context.

    Not promised: that `context_fn` is not called.
    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe, entered = under_test.ops, under_test.probe(), []

    class Context:
        def __enter__(self):
            entered.append(True)

        def __exit__(self, *exc):
            pass

    def program(checkpoint, x):
        region = lambda x: ops.exp(ops.sin(probe(x)))  # noqa: E731
        with under_test.torch.no_grad():
            y = checkpoint.using(context_fn=lambda: (Context(), Context()))(region, x)
        return checkpoint(region, ops.multiply(x, y))

    under_test.run(program, under_test.array())

    assert not entered, "a context was entered"


@clause("API-23", MUST, needs=TORCH, profile=Profile.TORCH)
def test_where_gradients_are_off_an_argument_comes_back_as_it_is(under_test):
    """Where gradients are switched off, a region that returns its argument returns that array, with its gradient.

    Source: torch.utils.checkpoint; found by drawn programs (FUZZ-01).
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        with under_test.torch.no_grad():
            same = checkpoint(lambda x: x, x)
        return ops.multiply(same, checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x))

    under_test.run(program, under_test.array())
