"""MEM: what is held, and until when.

After forward a region holds its arguments and results, no intermediate. After backward it holds nothing. What a region
refers to is released when the program's outputs are, by reference counting alone where the host has that.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, Profile, clause

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


@clause(
    "MEM-02",
    MUST,
    tests=Capability.FORWARD_GRAPH,
    needs=(Fact.HELD_IN_BACKWARD, Fact.TORCH_NAMES),
    profile=Profile.TORCH,
)
def test_recomputed_values_go_as_backward_uses_them(under_test):
    """While backward passes through a region, what it has used is released: no more is held than in the plain backward.

    Source: torch.utils.checkpoint; pytorch/pytorch#78752.
    """
    ops, probe, held = under_test.ops, under_test.probe(), []
    size = 8 * 1000

    def program(checkpoint, x):
        held.append([])

        def region(x):
            x = probe(x)
            for _ in range(6):
                x = ops.sin(x)
                x.register_hook(lambda gradient: held[-1].append(under_test.held()))
            return ops.sum(x)

        return checkpoint(region, x)

    under_test.run(program, under_test.array(shape=(1000,)), memory=True)
    plain, seen = held[0], held[-1]

    assert plain[0] - plain[-1] >= 4 * size, "the plain backward releases nothing to compare with"
    assert len(seen) == len(plain), "hooks in the region did not fire as in the plain backward"
    assert all(b <= a + 2 * size for a, b in zip(plain, seen, strict=True)), "recomputed values outlive their use"


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


@clause(
    "MEM-06",
    MUST,
    tests=Capability.PARTIAL_BACKWARD,
    needs=(Fact.HELD_BYTES, Fact.RETAIN, Fact.TORCH_NAMES),
    profile=Profile.TORCH,
)
def test_leftovers_of_a_partial_backward_go_with_the_graph(under_test):
    """What a partial backward recomputed and did not use is released when the outputs are dropped.

    Source: torch.utils.checkpoint; pytorch/pytorch#136766.
    """
    ops, torch, probe, held = under_test.ops, under_test.torch, under_test.probe(), []
    size = 8 * 1000

    def program(checkpoint, x):
        def region(x):
            x = ops.sin(probe(x))
            return ops.exp(x), ops.sin(ops.tanh(ops.cos(x)))

        def differentiate():
            outputs = checkpoint(region, x)
            under_test.noted(torch.autograd.grad, ops.sum(outputs[0]), x, None, True)

        differentiate()
        held.append(under_test.held())
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    assert held[-1] <= held[0] + size // 2, "recomputed values are held after the outputs are gone"


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


@clause(
    "MEM-10",
    SHOULD,
    tests=(Capability.KEYWORDS, Capability.NESTED_ARGUMENTS),
    needs=HELD,
    argument=("keyword", "nested"),
)
def test_an_inner_region_holds_no_argument_however_it_is_given(under_test, argument):
    """After forward, an intermediate that an inner region was given by keyword or in a container is not held.

    Source: pytorch/pytorch#178568.
    """
    ops, probe = under_test.ops, under_test.probe()
    size = 8 * 1000

    def program(checkpoint, x):
        def inner(box, other=None):
            return ops.sum(ops.sin(ops.exp(box[0] if other is None else other)))

        def outer(x):
            total = ops.sum(x)
            for _ in range(4):
                x = ops.exp(ops.sin(probe(x)))
                given = ((None,), {"other": x}) if argument == "keyword" else (([x],), {})
                total = ops.add(total, checkpoint(inner, *given[0], **given[1]))
            return total

        return checkpoint(outer, x)

    seen = under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    assert seen.plain.held.after_forward >= 8 * size, "the plain run holds no intermediates to compare with"
    assert seen.held.after_forward <= 3 * size, "arguments of inner regions are held after forward"


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
