"""GRAD: gradients of the first order.

A region is invisible to differentiation: whatever it reads, wherever its results go, the program's values and gradients
are those of the plain call. What it costs is one more execution of the region, on behalf of backward, and only where
backward needs it.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


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


@clause("GRAD-04", MUST, tests=Capability.FORWARD_GRAPH, needs=(Fact.GRADIENT_FLAGS,))
def test_results_need_a_gradient_where_the_plain_ones_do(under_test):
    """Each result says that it needs a gradient if and only if the plain result does: not a detached one, nor integers.

    Source: pytorch/pytorch#7617.
    """
    ops, probe, flags = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        constant = under_test.array(1.0, 2.0)

        def region(x, constant):
            y = ops.exp(ops.sin(probe(x)))
            return y, under_test.stop_gradient(ops.cos(y)), ops.astype(y, "int64"), ops.exp(constant)

        results = checkpoint(region, x, constant)
        flags.append([under_test.needs_gradient(y) for y in results])
        return results[0]

    under_test.run(program, under_test.array())

    assert flags[-1] == flags[0], "a result's flag is not the plain one"


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


@clause("GRAD-06", MUST, tests=Capability.FORWARD_GRAPH, needs=TORCH, profile=Profile.TORCH)
def test_what_has_no_influence_has_no_gradient(under_test):
    """An argument that the region ignores, or that only an unused result depends on, has no gradient, as in a plain
    run: none at all, not zeros.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, kept, absent = under_test.ops, under_test.probe(), [], []

    def program(checkpoint, x, ignored, unused):
        def region(x, ignored, unused):
            return ops.exp(ops.sin(probe(x))), ops.exp(ops.sin(unused))

        y = checkpoint(region, x, ignored, unused)[0]
        kept[:] = y, x, ignored, unused
        return y

    def backward(pull):
        y, *arrays = kept
        under_test.torch.autograd.backward(ops.sum(y))
        absent.append([x.grad is None for x in arrays])
        return arrays[0].grad

    primals = under_test.array(), under_test.array(), under_test.array()
    under_test.run(program, *primals, backward=lambda pull: under_test.noted(backward, pull))

    assert absent[-1] == absent[0], "an array without influence has a gradient"


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


@clause(
    "GRAD-10",
    MUST,
    tests=Capability.CHOSEN_INPUTS,
    needs=TORCH,
    profile=Profile.TORCH,
    by=("grad", "backward with inputs"),
)
def test_the_gradient_of_chosen_arrays_may_be_asked_for(under_test, by):
    """The gradient with respect to some of the arrays that a region depends on is the plain one; the others get none.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, kept = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x, w):
        h = ops.cos(x)
        y = checkpoint(lambda h: ops.exp(ops.sin(ops.multiply(probe(h), w))), h)
        kept.update(x=x, w=w, h=h, loss=ops.sum(y))
        return y

    def backward(pull):
        autograd = under_test.torch.autograd
        if by == "grad":
            captured = autograd.grad(kept["loss"], [kept["w"]], retain_graph=True)
            return captured, autograd.grad(kept["loss"], [kept["h"]])
        autograd.backward(kept["loss"], inputs=[kept["x"]])
        return kept["x"].grad, kept["w"].grad is None

    primals = under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25)
    under_test.run(program, *primals, backward=lambda pull: under_test.noted(backward, pull))


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


@clause("GRAD-15", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_backward_with_gradients_off_replays_with_gradients_on(under_test):
    """A backward that is called while gradients are off gives the right gradient: the replay runs with gradients on.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        with under_test.torch.no_grad():
            return pull()

    under_test.run(program, under_test.array(), backward=backward)


@clause("GRAD-16", MUST, where=("inside", "a result", "an argument"))
def test_a_region_may_contain_what_needs_no_gradient(under_test, where):
    """What is cut off from the graph inside a region, or enters it cut off, gets no gradient, and the rest is right.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x, scale):
            y = ops.exp(ops.sin(probe(x)))
            if where == "inside":
                scale = under_test.stop_gradient(ops.cos(scale))
            y = ops.sin(ops.multiply(y, scale))
            return (y, under_test.stop_gradient(ops.exp(y))) if where == "a result" else (y, ops.cos(y))

        first, second = checkpoint(region, x, under_test.stop_gradient(x) if where == "an argument" else x)
        return first if where == "a result" else ops.multiply(first, second)

    under_test.run(program, under_test.array())


@clause("GRAD-17", MUST, array=("empty", "0-d", "broadcast", "complex", "selected"))
def test_arrays_of_every_kind_may_be_arguments(under_test, array):
    """Empty, 0-dimensional, broadcast and complex arrays, and those selected by a mask, are arguments like others.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()
    mask = under_test.array(True, False, True, True, dtype="bool")

    def program(checkpoint, x):
        h = {
            "broadcast": lambda: ops.broadcast_to(x, (3, 4)),
            "complex": lambda: ops.astype(x, "complex128"),
            "selected": lambda: x[mask],
        }.get(array, lambda: ops.cos(x))()
        y = checkpoint(lambda h: ops.exp(ops.sin(probe(h))), h)
        return ops.abs(y) if array == "complex" else y

    shapes = {"empty": (0,), "0-d": ()}
    under_test.run(program, under_test.array(shape=shapes.get(array, (4,))))


@clause("GRAD-18", MUST, needs=(Fact.SEPARATE_OUTPUTS,))
def test_gradients_of_several_batches_add_up(under_test):
    """Backward calls for one batch after the other give gradients of a parameter that add up to the plain sum.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, w):
        batches = [under_test.array(*(0.1 * i + j for j in range(4))) for i in range(3)]
        return [checkpoint(lambda x, w: ops.exp(ops.sin(ops.multiply(probe(x), w))), x, w) for x in batches]

    def backward(pull):
        total = under_test.array(0.0, 0.0, 0.0, 0.0)
        for batch in range(3):
            total = ops.add(total, pull(outputs=[batch])[0])
        return total

    under_test.run(program, under_test.array(), backward=backward, replays=3)


@clause("GRAD-19", SHOULD, tests=Capability.FORWARD_GRAPH, needs=(Fact.EAGER, Fact.GRADIENT_FLAGS))
def test_what_leaves_a_region_by_the_side_stays_differentiable(under_test):
    """A value that forward stored outside the region is part of the program's graph and has its gradient.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, flags = under_test.ops, under_test.probe(), []

    def program(checkpoint, x, *, uses_it=True):
        stored = []

        def region(x):
            y = ops.sin(probe(x))
            stored.append(ops.exp(y))
            return ops.cos(y)

        y, first = checkpoint(region, x), stored[0]
        flags.append(under_test.needs_gradient(first))
        return ops.multiply(y, first) if uses_it else y

    def result_only(checkpoint, x):
        return program(checkpoint, x, uses_it=False)

    under_test.run(result_only, under_test.array())
    assert flags[-1] == flags[0], "a value that was stored outside is cut off from the graph"

    under_test.run(program, under_test.array())


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


@clause("GRAD-24", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_region_may_switch_gradients_off_for_a_while(under_test):
    """What a region computes with gradients off gets none, in the replay as in forward, and the rest is right.

    Source: torch.utils.checkpoint; PyTorch's own test of a partly detached region.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            with under_test.torch.no_grad():
                scale = ops.exp(ops.sin(x))
            return ops.sin(ops.multiply(ops.exp(probe(x)), scale))

        return checkpoint(region, x)

    under_test.run(program, under_test.array())


@clause("GRAD-25", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_sparse_array_may_be_an_argument(under_test):
    """A sparse array may be an argument of a region.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        sparse = under_test.array(0.0, 2.0, 0.0, 3.0, shape=(2, 2)).to_sparse()
        return checkpoint(lambda m, x: ops.exp(ops.sin(under_test.torch.sparse.mm(m, probe(x)))), sparse, x)

    under_test.run(program, under_test.array(shape=(2, 2)))


@clause("GRAD-26", MUST)
def test_a_region_may_ignore_an_argument_that_was_computed(under_test):
    """Where a region makes no use of an argument that the program computed, all gradients are those of the plain run.

    Source: found by drawn programs (FUZZ-11).
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        return checkpoint(lambda x, ignored: ops.exp(ops.sin(probe(x))), x, ops.sum(w, axis=0))

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0))
