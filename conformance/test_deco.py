"""DECO: the decorator form.

`checkpoint(**options)` without a function gives a decorator. It separates what configures the checkpoint from what is
given to the function.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

DECORATOR = Capability.DECORATOR


@clause("DECO-01", MUST, tests=DECORATOR)
def test_the_decorated_function_is_the_checkpointed_one(under_test):
    """A decorated function gives the values, gradients and number of executions of the direct form.

    Source: torch.utils.checkpoint, "called without a function"; pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        @checkpoint.decorator()
        def region(x):
            return ops.exp(ops.sin(probe(x)))

        return region(x)

    seen = under_test.run(program, under_test.array())

    assert seen.forward[probe] == 1, "forward ran the region more than once"
    assert seen.backward[probe] == 1, "backward ran the region more than once"


@clause(
    "DECO-02",
    MUST,
    tests=(DECORATOR, Capability.KEYWORDS),
    keyword=("early_stop", "preserve_rng_state", "determinism_check", "debug"),
)
def test_the_function_may_have_parameters_named_like_options(under_test, keyword):
    """Keywords of the decorated function are its own, also where an option has the same name.

    Source: pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        @checkpoint.decorator()
        def region(x, **given):
            return ops.exp(ops.multiply(ops.sin(probe(x)), given[keyword]))

        return region(x, **{keyword: w})

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("DECO-03", MUST, tests=DECORATOR, needs=(Fact.TORCH_NAMES,), profile=Profile.TORCH)
def test_an_unknown_option_is_refused_before_any_call(under_test):
    """An option that does not exist is refused when the decorator is made or applied, not at the first call.

    Source: pytorch/pytorch#189411.
    """
    ops, probe, decorator, refused = under_test.ops, under_test.probe(), under_test.api.checkpoint, []

    def program(checkpoint, x):
        @checkpoint.decorator()
        def region(x):
            return ops.exp(ops.sin(probe(x)))

        return region(x)

    under_test.run(program, under_test.array())
    try:
        decorator(use_reentrant=False, no_such_option=1)(ops.sin)
    except Exception:
        refused.append(True)

    assert refused, "an unknown option was accepted"


@clause("DECO-04", MUST, tests=DECORATOR)
def test_methods_can_be_decorated(under_test):
    """A decorated method is bound to its object, and its object's parameters get their gradients.

    Source: pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        class Layer:
            def __init__(self, w):
                self.w = w

            @checkpoint.decorator()
            def apply(self, x):
                return ops.exp(ops.multiply(ops.sin(probe(x)), self.w))

        return Layer(w).apply(x)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("DECO-05", SHOULD, tests=DECORATOR)
def test_the_decorated_function_keeps_its_name_and_docstring(under_test):
    """A decorated function has the name and the docstring of the function.

    Source: pytorch/pytorch#189411.
    """
    ops, probe, kept = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        @checkpoint.decorator()
        def region(x):
            """What it does."""
            return ops.exp(ops.sin(probe(x)))

        kept.append((region.__name__, region.__doc__))
        return region(x)

    under_test.run(program, under_test.array())

    assert set(kept) == {("region", "What it does.")}, "name or docstring is lost"


@clause("DECO-06", MUST, tests=DECORATOR)
def test_a_decorator_and_what_it_decorated_can_be_used_again(under_test):
    """One decorator serves several functions, and a decorated function may be called many times, also by itself.

    Source: pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        decorate = checkpoint.decorator()

        @decorate
        def one(x):
            x = ops.exp(ops.sin(probe(x)))
            return one(ops.concat([x, x])) if x.shape[0] < 16 else x

        @decorate
        def two(x):
            return ops.tanh(ops.cos(probe(x)))

        return two(one(two(x)))

    under_test.run(program, under_test.array())


@clause(
    "DECO-07",
    MUST,
    tests=(DECORATOR, Capability.EARLY_STOP_SETTING),
    needs=(Fact.TORCH_NAMES,),
    profile=Profile.TORCH,
    at=("decoration", "call"),
)
def test_settings_count_at_the_call(under_test, at):
    """A context that overrides an option counts where it is active at the call, not where it was at decoration.

    Source: pytorch/pytorch#189411; torch.utils.checkpoint, `set_checkpoint_early_stop`.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")
    set_early_stop = under_test.api.set_checkpoint_early_stop

    def program(checkpoint, x):
        def region(x):
            return tail(ops.add(ops.exp(ops.sin(head(x))), 1.0))

        with set_early_stop(at != "decoration"):
            decorated = checkpoint.decorator()(region)
        with set_early_stop(at != "call"):
            return decorated(x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[tail] == (at == "call"), "the setting at the call did not decide"


@clause("DECO-08", SHOULD, tests=(DECORATOR, Capability.REENTRANT), needs=(Fact.TORCH_NAMES,), profile=Profile.TORCH)
def test_each_call_warns_if_the_decorator_chose_no_form(under_test):
    """Where a decorator chooses neither form, each call warns and names its line; the decoration does not.

    Source: pytorch/pytorch#189411.
    """
    ops, probe, decorator, at_decoration, at_call = (
        under_test.ops,
        under_test.probe(),
        under_test.api.checkpoint,
        [],
        [],
    )

    def program(checkpoint, x):
        def decorated(region, x):
            with under_test.warnings() as warned:
                region = decorator()(region)
            at_decoration.extend(warned)
            with under_test.warnings() as warned:
                y = region(x)
            at_call.extend(warned)
            return y

        return checkpoint.through(decorated)(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())

    assert not at_decoration, "the decoration warned"
    assert len(at_call) == 1, "the call did not warn, or more than once"
    assert all(w.is_at_call for w in at_call), "a warning points into the implementation"


@clause(
    "DECO-09",
    SHOULD,
    tests=(DECORATOR, Capability.DETERMINISM_CHECK),
    needs=(Fact.TORCH_NAMES,),
    profile=Profile.TORCH,
)
def test_an_option_with_an_unknown_value_is_refused_before_any_call(under_test):
    """An option's value that does not exist is refused when the decorator is made or applied, not at the first call.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe, accepted = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        @checkpoint.decorator()
        def region(x):
            return ops.exp(ops.sin(probe(x)))

        try:
            accepted[:] = [checkpoint.decorator(determinism_check="bogus")(ops.sin)]
        except Exception:
            accepted.clear()
        return region(x)

    under_test.run(program, under_test.array())

    assert not accepted, "an unknown value was accepted"


@clause("DECO-10", MUST, tests=DECORATOR)
def test_a_keyword_of_a_decorated_function_is_used_or_refused(under_test):
    """A keyword argument of a decorated function takes effect, or the call raises; it is never dropped.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x, scale=1.0):
        return ops.exp(ops.multiply(ops.sin(probe(x)), scale))

    def program(checkpoint, x):
        return checkpoint.decorator()(region)(x, scale=2.0)

    def without(checkpoint, x):
        return checkpoint.decorator()(region)(x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause("DECO-11", MUST, tests=DECORATOR)
def test_decorating_twice_nests_the_region(under_test):
    """A function that is decorated twice gives the values and gradients of the plain one.

    Source: pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        @checkpoint.decorator()
        @checkpoint.decorator()
        def region(x):
            return ops.exp(ops.sin(probe(x)))

        return region(x)

    under_test.run(program, under_test.array())


@clause("DECO-12", MAY, tests=DECORATOR)
def test_a_decorated_object_is_no_longer_that_object(under_test):
    """A callable object can be decorated; the result is called like it, but does not have its attributes.

    Source: pytorch/pytorch#189411.
    """
    ops, probe, kept = under_test.ops, under_test.probe(), []

    class Layer:
        """A layer."""

        def __init__(self, weight):
            self.weight = weight

        def __call__(self, x):
            return ops.exp(ops.multiply(ops.sin(probe(x)), self.weight))

    def program(checkpoint, x):
        layer = checkpoint.decorator()(Layer(2.0))
        kept.append(hasattr(layer, "weight"))
        return layer(x)

    under_test.run(program, under_test.array())

    assert not kept[-1], "the object's attributes are still there"


@clause("DECO-13", MAY, tests=DECORATOR, needs=(Fact.TORCH_NAMES,), profile=Profile.TORCH)
def test_none_for_the_function_makes_a_decorator(under_test):
    """None in the function's place gives a decorator, as the call without a function does.

    Source: torch.utils.checkpoint, signature of `checkpoint`.
    """
    ops, probe, decorator = under_test.ops, under_test.probe(), under_test.api.checkpoint

    def program(checkpoint, x):
        def decorated(region, x):
            return decorator(None, use_reentrant=False)(region)(x)

        return checkpoint.through(decorated)(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())


@clause("DECO-14", MUST, tests=(DECORATOR, Capability.CAPTURED_ONLY))
def test_a_function_without_arguments_can_be_decorated(under_test):
    """A decorated function without arguments gives gradients to what it captures.

    Source: pytorch/pytorch#189411.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        @checkpoint.decorator()
        def region():
            return ops.exp(ops.sin(probe(x)))

        return region()

    under_test.run(program, under_test.array())


@clause("DECO-16", MUST, tests=(DECORATOR, Capability.NO_EARLY_STOP))
def test_options_of_the_decorator_count(under_test):
    """Options given to the decorator hold for the calls of the decorated function.

    Source: torch.utils.checkpoint, "called without a function".
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")

    def program(checkpoint, x):
        @checkpoint.decorator(early_stop=False)
        def region(x):
            return tail(ops.add(ops.exp(ops.sin(head(x))), 1.0))

        return region(x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[tail] == 1, "the option early_stop=False of the decorator was lost"
