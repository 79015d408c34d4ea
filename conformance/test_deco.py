"""DECO: the decorator form.

`checkpoint(**options)` without a function gives a decorator. It separates what configures the checkpoint from what is
given to the function.
"""

from ckptspec.conformance.backend import Capability
from ckptspec.conformance.clause import MUST, SHOULD, clause

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
