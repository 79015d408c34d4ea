"""NEST: regions inside regions, and gradients inside regions.

A region may contain others, to any depth: each hides from the one around it what it saved. It may also differentiate
inside itself. All of it goes when the program's outputs go.
"""

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


@clause("NEST-02", MUST, needs=(Fact.HELD_BYTES,))
def test_an_outer_region_holds_nothing_of_its_inner_ones(under_test):
    """After forward nothing of the regions inside a region is held: neither what they saved nor what they were given.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105; jax-ml/jax#18817.
    """
    ops, probe = under_test.ops, under_test.probe()
    size = 8 * 1000

    def program(checkpoint, x):
        def inner(x):
            return ops.exp(ops.sin(ops.cos(probe(x))))

        def outer(x):
            for _ in range(4):
                x = checkpoint(inner, ops.cos(x))
            return ops.sum(x)

        return checkpoint(outer, x)

    seen = under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    assert seen.plain.held.after_forward >= 8 * size, "the plain run holds no intermediates to compare with"
    assert seen.held.after_forward <= 3 * size, "what belongs to inner regions is held after forward"


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


@clause(
    "NEST-05",
    MUST,
    tests=Capability.REENTRANT,
    needs=(Fact.TORCH_NAMES,),
    profile=Profile.TORCH,
    outer=("reentrant", "non-reentrant"),
    inner=("reentrant", "non-reentrant"),
)
def test_regions_of_both_forms_may_contain_each_other(under_test, outer, inner):
    """Regions of the reentrant and of the other form may be nested in each other; gradients are the plain ones.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def calling(form):
            is_reentrant = form == "reentrant"
            return checkpoint.through(
                lambda region, *args: under_test.api.checkpoint(region, *args, use_reentrant=is_reentrant)
            )

        def inside(x, w):
            return ops.exp(ops.sin(ops.multiply(probe(x), w)))

        def outside(x, w):
            return ops.sin(ops.exp(calling(inner)(inside, ops.cos(x), w)))

        return calling(outer)(outside, x, w)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause(
    "NEST-06",
    MUST,
    tests=(Capability.FORWARD_GRAPH, Capability.CHOSEN_INPUTS),
    needs=(Fact.EAGER, Fact.TORCH_NAMES),
    profile=Profile.TORCH,
)
def test_a_hook_may_differentiate_another_part_of_the_region(under_test):
    """A hook on a value inside a region, called during backward, may itself call backward on another result of it.

    Source: torch.utils.checkpoint; PyTorch's own test of a backward inside a hook.
    """
    ops, probe, found = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        found.clear()
        losses = []

        def hook(gradient):
            found.extend(under_test.torch.autograd.grad(losses, [x], retain_graph=True))

        def region(x):
            y = ops.sin(probe(x))
            if under_test.phase == "forward":
                y.register_hook(hook)
            return ops.exp(y), ops.multiply(ops.cos(x), ops.exp(x))

        first, second = under_test.noted(checkpoint, region, x)
        losses.append(ops.sum(second))
        return ops.add(ops.sin(first), second)

    def backward(pull):
        return pull(retain=True), list(found)

    under_test.run(program, under_test.array(), backward=backward)


@clause(
    "NEST-07",
    MUST,
    tests=Capability.FORWARD_GRAPH,
    needs=(Fact.EAGER, Fact.TORCH_NAMES),
    profile=Profile.TORCH,
    hooked=("in the outer region", "in the inner region"),
)
def test_backward_passes_the_graph_of_the_forward(under_test, hooked):
    """Backward passes the graph that forward recorded: a hook on a value inside nested regions, registered in forward,
    is called once, with the plain gradient.

    Source: torch.utils.checkpoint; PyTorch's own test of nested regions and hooks.
    """
    ops, probe, gradients = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        gradients.clear()

        def watched(y):
            if under_test.phase == "forward":
                y.register_hook(gradients.append)
            return y

        def inner(x):
            y = ops.sin(probe(x))
            return ops.exp(watched(y) if hooked == "in the inner region" else y)

        def outer(x):
            y = ops.cos(x)
            return ops.exp(ops.sin(checkpoint(inner, watched(y) if hooked == "in the outer region" else y)))

        return checkpoint(outer, x)

    def backward(pull):
        return pull(), list(gradients)

    under_test.run(program, under_test.array(), backward=lambda pull: under_test.noted(backward, pull))


@clause("NEST-08", MUST, needs=(Fact.RELEASE,), after=("backward", "forward"))
def test_nested_regions_are_released_with_the_outputs(under_test, after):
    """What nested regions captured is released when the program's outputs are, without a garbage collection.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """
    ops, probe, alive = under_test.ops, under_test.probe(), []

    class Captured:
        pass

    def program(checkpoint, x):
        outer_captured, inner_captured = Captured(), Captured()
        alive.extend(under_test.watch(captured) for captured in (outer_captured, inner_captured))

        def inner(x):
            assert inner_captured is not None
            return ops.exp(ops.sin(probe(x)))

        def outer(x):
            assert outer_captured is not None
            return ops.exp(ops.sin(checkpoint(inner, ops.cos(x))))

        return checkpoint(outer, x)

    under_test.run(program, under_test.array())
    if after == "forward":
        alive.clear()
        under_test.run(program, under_test.array(), replays=0, backward=lambda pull: None)

    assert not any(is_alive() for is_alive in alive), "what a region captured is alive after the outputs are gone"


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


@clause("NEST-11", MUST, tests=Capability.GRADIENT_INSIDE, needs=(Fact.RELEASE, Fact.HIGHER_ORDER))
def test_a_region_that_took_a_gradient_is_released_with_the_outputs(under_test):
    """What a region captured that took a gradient inside is released when the outputs are, without a collection.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """
    ops, probe, alive = under_test.ops, under_test.probe(), []

    class Captured:
        pass

    def program(checkpoint, x):
        captured = Captured()
        alive.append(under_test.watch(captured))

        def region(x):
            assert captured is not None
            slope = under_test.gradient(lambda x: ops.exp(ops.sin(x)))(x)
            return ops.tanh(ops.multiply(slope, ops.cos(probe(x))))

        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert not any(is_alive() for is_alive in alive), "what a region captured is alive after the outputs are gone"


@clause("NEST-12", MUST, tests=Capability.FREE_CAPTURES, given=("to the middle region", "to the inner region"))
def test_names_of_one_array_may_part_in_a_replay(under_test, given):
    """Where an array has several names in a nested region, which in a replay may be several arrays, the gradients are
    the plain ones.

    Source: found by drawn programs (FUZZ-01).
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def inner(x, y, z):
            return ops.exp(ops.sin(ops.multiply(probe(z), ops.add(x, y))))

        def outer(x):
            z = ops.sin(x)
            if given == "to the inner region":
                return checkpoint(inner, x, x, z)
            return checkpoint(lambda y, z: checkpoint(inner, y, x, z), x, z)

        return checkpoint(outer, x)

    # The contributions to one array may be added in another order.
    under_test.run(program, under_test.array(), tolerance=1e-12)
