"""GRAD: gradients of the first order.

A region is invisible to differentiation: whatever it reads, wherever its results go, the program's values and gradients
are those of the plain call. What it costs is one more execution of the region, on behalf of backward, and only where
backward needs it.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, Profile, clause


@clause("GRAD-01", MUST, profile=Profile.CORE, dtype=("float64", "float32"))
def test_values_and_gradients_equal_the_plain_run(under_test, dtype):
    """Values and gradients of a checkpointed region are those of the plain call, to the bit.

    Not promised: equality on a host whose plain run does not repeat itself.
    Source: torch.utils.checkpoint, first paragraph; pytorch/pytorch#42212.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, w):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), ops.exp(w)))

        return checkpoint(region, x, w)

    under_test.run(program, under_test.array(dtype=dtype), under_test.array(0.5, -1.0, 2.0, 0.0, dtype=dtype))


@clause("GRAD-02", MUST, profile=Profile.CORE)
def test_parameters_that_a_region_reads_get_their_gradients(under_test):
    """A parameter that the region reads without being given it as an argument gets its gradient.

    Source: torch.utils.checkpoint; ooples/AiDotNet.Tensors#643; pytorch/pytorch#33962.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), w))

        return checkpoint(region, x)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("GRAD-03", MUST, profile=Profile.CORE)
def test_captured_intermediates_get_their_gradients(under_test):
    """Gradients flow through a captured value that was computed before the region.

    Source: torch.utils.checkpoint; unslothai/unsloth-zoo#1275.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        scale = ops.exp(w)

        def region(x):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), scale))

        return checkpoint(region, x)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("GRAD-05", MUST, tests=Capability.CAPTURED_ONLY)
def test_a_region_whose_arguments_need_no_gradient_trains_its_parameters(under_test):
    """Parameters get their gradients although none of the region's arguments needs one.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#33962.
    """
    ops, probe, data = under_test.ops, under_test.probe(), under_test.array(1.0, 2.0, 3.0, 4.0)

    def program(checkpoint, w):
        def region(data):
            return ops.tanh(ops.multiply(ops.sin(probe(data)), w))

        # The sum keeps a gradient that the region loses from being an error.
        return ops.add(checkpoint(region, data), w)

    under_test.run(program, under_test.array())


@clause("GRAD-07", MUST, profile=Profile.CORE)
def test_a_parameter_of_several_regions_sums_its_gradients(under_test):
    """The gradient of a parameter used in several regions and outside is the sum of all contributions.

    Source: torch.utils.checkpoint; deepspeedai/DeepSpeed#2103.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x):
            return ops.sin(ops.multiply(probe(x), w))

        return ops.multiply(checkpoint(region, ops.cos(checkpoint(region, x))), w)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25), replays=2)


@clause("GRAD-08", MUST, profile=Profile.CORE, second=("as an argument", "captured"))
def test_an_array_that_enters_twice_sums_its_gradients(under_test, second):
    """An array given in two positions, or as an argument and captured, gets the sum of both gradients.

    Source: tensorflow/tensorflow#36999.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def two(a, b):
            return ops.multiply(ops.sin(probe(a)), ops.exp(b))

        def one(a):
            return two(a, x)

        return checkpoint(two, x, x) if second == "as an argument" else checkpoint(one, x)

    under_test.run(program, under_test.array())


@clause("GRAD-09", MUST, tests=Capability.FREE_CAPTURES)
def test_a_captured_intermediate_may_also_be_used_outside(under_test):
    """A captured intermediate that the program also uses outside the region gets both gradients.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        scale = ops.exp(w)

        def region(x):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), scale))

        return ops.add(checkpoint(region, x), ops.cos(scale))

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("GRAD-11", MUST, profile=Profile.CORE)
def test_a_region_that_backward_does_not_need_is_not_replayed(under_test):
    """A region whose result has no influence on what is differentiated is not replayed.

    Source: torch.utils.checkpoint.
    """
    ops, needed, unneeded = under_test.ops, under_test.probe("needed"), under_test.probe("unneeded")

    def program(checkpoint, x):
        checkpoint(lambda x: ops.sin(ops.exp(unneeded(x))), x)
        return checkpoint(lambda x: ops.sin(ops.exp(needed(x))), x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[unneeded] == 0, "a region without influence was replayed"


@clause("GRAD-12", MUST, tests=Capability.EARLY_STOP)
def test_a_region_that_saves_nothing_is_not_replayed(under_test):
    """A region in which no operation saved a value is not replayed.

    Source: pytorch/pytorch#96866.
    """
    ops, linear, other = under_test.ops, under_test.probe("linear"), under_test.probe("other")

    def program(checkpoint, x):
        y = checkpoint(lambda x: ops.add(linear(x), 1.0), x)
        return checkpoint(lambda y: ops.sin(ops.exp(other(y))), y)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[linear] == 0, "a region that saved nothing was replayed"


@clause("GRAD-13", MUST, profile=Profile.CORE)
def test_a_backward_replays_a_region_exactly_once(under_test):
    """A region runs once in forward and once more in backward, however many values it saved and results it has.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, a, b):
        def region(a, b):
            y = ops.tanh(ops.multiply(ops.sin(probe(a)), ops.exp(b)))
            return y, ops.cos(ops.multiply(y, a))

        first, second = checkpoint(region, a, b)
        return ops.multiply(first, second), second

    seen = under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))

    assert seen.forward[probe] == 1, "forward ran the region more than once"
    assert seen.backward[probe] == 1, "backward ran the region more than once"


@clause("GRAD-14", MUST, tests=Capability.PARTIAL_BACKWARD, needs=(Fact.SEPARATE_OUTPUTS,))
def test_outputs_may_be_differentiated_in_separate_calls(under_test):
    """Backward calls on different outputs of one region work, without being announced, where the plain graph allows it.

    Not promised: that the calls share a replay.
    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0))

        return checkpoint(region, x)

    def backward(pull):
        return pull(outputs=[0]), pull(outputs=[1])

    under_test.run(program, under_test.array(), backward=backward)


@clause("GRAD-20", MUST, profile=Profile.CORE)
def test_the_product_with_a_constant_has_the_constant_as_its_gradient(under_test):
    """The gradient of x * y, where only x needs one, is y.

    Source: the published tutorial on `checkpoint`, second example.
    """
    ops, probe, y = under_test.ops, under_test.probe(), under_test.array(1.0, -2.0, 3.0, 0.5)

    def program(checkpoint, x):
        return checkpoint(lambda x, y: ops.multiply(x, y), x, y)

    def with_replay(checkpoint, x):
        return checkpoint(lambda x, y: ops.sin(ops.multiply(ops.exp(probe(x)), y)), x, y)

    seen = under_test.run(program, under_test.array(), replays=0)
    under_test.run(with_replay, under_test.array())

    assert seen.gradients[0].tolist() == [1.0, -2.0, 3.0, 0.5], "the gradient of x * y is not y"


@clause("GRAD-21", MUST, profile=Profile.CORE, activation=("none", "tanh"))
def test_an_affine_map_gives_all_three_gradients(under_test, activation):
    """x @ w + b in a region gives the gradients of x, w and b.

    Source: the published tutorial on `checkpoint`, third example.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w, b):
        def region(x, w, b):
            y = ops.add(ops.matmul(x, w), b)
            return y if activation == "none" else ops.tanh(ops.exp(probe(y)))

        y = checkpoint(region, x, w, b)
        return checkpoint(lambda y: ops.sin(ops.exp(probe(y))), y)

    under_test.run(program, under_test.array(shape=(4, 3)), under_test.array(shape=(3, 2)), under_test.array(0.5, -1.0))


@clause("GRAD-22", MUST, profile=Profile.CORE)
def test_a_model_may_checkpoint_one_of_its_layers(under_test):
    """A model of two linear layers, the second one checkpointed, trains all its parameters.

    Source: the published tutorial on `checkpoint`, first example.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w1, b1, w2, b2):
        def first(x):
            return ops.add(ops.matmul(x, w1), b1)

        def second(x):
            return ops.tanh(ops.add(ops.matmul(ops.sin(probe(x)), w2), b2))

        return ops.sum(checkpoint(second, first(x)))

    under_test.run(
        program,
        under_test.array(shape=(5, 10)),
        under_test.array(shape=(10, 20)),
        under_test.array(shape=(20,)),
        under_test.array(shape=(20, 30)),
        under_test.array(shape=(30,)),
    )


@clause("GRAD-23", MUST)
def test_a_function_that_is_called_again_is_executed_again(under_test):
    """A function that is checkpointed a second time sees what it captured as it is then, not as it was at first.

    Source: pytorch/pytorch#166926.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        scale = [2.0]

        def region(x):
            return ops.exp(ops.sin(ops.multiply(probe(x), scale[0])))

        checkpoint(region, x)  # without influence, so that no replay of it sees the other scale
        scale[0] = 3.0
        return checkpoint(region, x)

    under_test.run(program, under_test.array())
