"""MEM: what is held, and until when.

After forward a region holds its arguments and results, no intermediate. After backward it holds nothing. What a region
refers to is released when the program's outputs are, by reference counting alone where the host has that.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, Profile, clause

HELD = (Fact.HELD_BYTES,)


@clause("MEM-01", MUST, needs=HELD, profile=Profile.CORE)
def test_no_intermediate_is_held_after_forward(under_test):
    """After forward, none of the region's intermediate values is held.

    Source: torch.utils.checkpoint; tensorflow/tensorflow#36981; jax-ml/jax#12792.
    """
    ops, probe = under_test.ops, under_test.probe()
    size = 8 * 1000

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            for _ in range(4):
                x = ops.exp(ops.sin(ops.cos(x)))
            return ops.sum(x)

        return checkpoint(region, x)

    seen = under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    assert seen.plain.held.after_forward >= 8 * size, "the plain run holds no intermediates to compare with"
    assert seen.held.after_forward <= 3 * size, "intermediates are held after forward"


@clause("MEM-03", MUST, needs=(Fact.HELD_BYTES, Fact.RETAIN))
def test_nothing_that_was_recomputed_stays(under_test):
    """After a backward that keeps the graph, no more is held than before it, apart from the gradients.

    Source: torch.utils.checkpoint; pytorch/pytorch#80151.
    """
    ops, probe = under_test.ops, under_test.probe()
    size = 8 * 1000

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            for _ in range(4):
                x = ops.exp(ops.sin(ops.cos(x)))
            return ops.sum(x)

        return checkpoint(region, x)

    def backward(pull):
        pull(retain=True)
        return pull(retain=True)

    seen = under_test.run(program, under_test.array(shape=(1000,)), backward=backward, memory=True)

    assert seen.held.after_backward <= seen.held.after_forward + size, "recomputed values are held after backward"


@clause("MEM-04", MUST, needs=HELD)
def test_no_more_is_held_after_backward_than_without_checkpoint(under_test):
    """After backward, while the outputs are alive, no more is held than after the plain backward.

    Source: torch.utils.checkpoint; pytorch/pytorch#82482.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        x = ops.cos(x)
        for _ in range(3):
            x = checkpoint(lambda x: ops.exp(ops.sin(ops.cos(probe(x)))), x)
        return x

    seen = under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    assert seen.held.after_backward <= seen.plain.held.after_backward, "more is held than after the plain backward"


@clause("MEM-07", MUST, needs=(Fact.RELEASE,), argument=("array", "text"))
def test_what_a_region_captured_is_released_with_the_outputs(under_test, argument):
    """The function and what it captured are released when the program's outputs are, without a garbage collection.

    Source: torch.utils.checkpoint; pytorch/pytorch#84413; pytorch/pytorch#154642.
    """
    ops, probe, alive = under_test.ops, under_test.probe(), []

    class Captured:
        pass

    def program(checkpoint, x):
        captured = Captured()
        alive.append(under_test.watch(captured))

        def region(x, *others):
            assert captured is not None
            return ops.exp(ops.sin(probe(x)))

        return checkpoint(region, x, "text") if argument == "text" else checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert not any(is_alive() for is_alive in alive), "what the region captured is alive after the outputs are gone"


@clause("MEM-09", MUST, needs=(Fact.RELEASE,))
def test_outputs_that_are_dropped_release_everything(under_test):
    """Dropping the outputs without a backward releases what the region captured, without a garbage collection.

    Source: torch.utils.checkpoint.
    """
    ops, probe, alive = under_test.ops, under_test.probe(), []

    class Captured:
        pass

    def program(checkpoint, x):
        captured = Captured()
        alive.append(under_test.watch(captured))

        def region(x):
            assert captured is not None
            return ops.exp(ops.sin(probe(x)))

        return checkpoint(region, x)

    under_test.run(program, under_test.array(), replays=0, backward=lambda pull: None)
    dropped = list(alive)
    under_test.run(program, under_test.array())

    assert not any(is_alive() for is_alive in dropped), "what the region captured is alive after the outputs are gone"


@clause("MEM-11", MUST, needs=HELD, profile=Profile.CORE)
def test_a_chain_of_regions_holds_one_value_a_region(under_test):
    """After forward through a chain of n regions, about n values are held, whatever each region computes.

    Source: torch.utils.checkpoint; Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost".
    """
    ops, probe = under_test.ops, under_test.probe()
    size = 8 * 1000

    def program(checkpoint, x):
        for _ in range(6):
            x = checkpoint(lambda x: ops.exp(ops.sin(ops.cos(ops.exp(ops.sin(probe(x)))))), x)
        return x

    seen = under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    assert seen.plain.held.after_forward >= 20 * size, "the plain run holds no intermediates to compare with"
    assert seen.held.after_forward <= 8 * size, "more is held than one value a region"


@clause("MEM-05", MUST, tests=Capability.PARTIAL_BACKWARD, needs=(Fact.HELD_BYTES, Fact.RETAIN, Fact.SEPARATE_OUTPUTS))
def test_partial_backwards_do_not_pile_up(under_test):
    """What a backward recomputed and did not need is not kept: many partial backwards hold no more than one.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()
    size = 8 * 1000

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            z = ops.tanh(x)
            return ops.multiply(ops.exp(x), 2.0), ops.multiply(z, 2.0)

        return checkpoint(region, x)

    def backward(pull):
        for _ in range(6):
            pull(outputs=[0], retain=True)
        return pull(outputs=[0], retain=True)

    seen = under_test.run(program, under_test.array(shape=(1000,)), backward=backward, memory=True)

    assert seen.held.after_backward <= seen.held.after_forward + 3 * size, "recomputed values pile up"
