"""NEST: regions inside regions, and gradients inside regions."""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, Profile, clause


@clause("NEST-01", MUST, profile=Profile.CORE, depth=(2, 3, 6))
def test_nested_regions_equal_the_plain_run(under_test, depth):
    """Values and gradients of regions inside regions are those of the plain call, at any depth.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def level(x, depth):
            x = ops.tanh(ops.multiply(probe(x), w))
            if depth:
                x = checkpoint(lambda x: level(x, depth - 1), x)
            return ops.exp(ops.sin(x))

        return checkpoint(lambda x: level(x, depth - 1), x)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("NEST-03", MUST, depth=(1, 2, 3, 5))
def test_the_innermost_region_runs_at_most_once_per_level_and_once_more(under_test, depth):
    """The innermost of d nested regions is executed at most d + 1 times in all.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def level(x, depth):
            if depth == 1:
                return checkpoint(lambda x: ops.tanh(ops.sin(probe(x))), x)
            return checkpoint(lambda x: ops.exp(ops.sin(level(x, depth - 1))), x)

        return level(x, depth)

    seen = under_test.run(program, under_test.array())

    assert seen.forward[probe] + seen.backward[probe] <= depth + 1, "more executions than levels and one"


@clause("NEST-04", MUST, tests=Capability.GRADIENT_INSIDE, needs=(Fact.HIGHER_ORDER,))
def test_a_region_may_take_a_gradient(under_test):
    """A region may differentiate inside itself, and the program may differentiate through that.

    Source: torch.utils.checkpoint; pytorch/pytorch#102223.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            slope = under_test.gradient(lambda x: ops.exp(ops.sin(x)))(x)
            return ops.tanh(ops.multiply(slope, ops.cos(probe(x))))

        return checkpoint(region, x)

    under_test.run(program, under_test.array())


@clause("NEST-09", MUST, profile=Profile.CORE)
def test_a_region_may_contain_several_regions(under_test):
    """Several regions inside one, one after the other and side by side, give the plain values and gradients.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def inner(x):
            return ops.exp(ops.sin(probe(x)))

        def outer(x):
            left, right = checkpoint(inner, x), checkpoint(inner, ops.cos(x))
            return checkpoint(inner, ops.multiply(left, right))

        return checkpoint(outer, x)

    under_test.run(program, under_test.array())
