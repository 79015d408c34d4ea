"""IO: what may go into a region and what may come out.

Anything that the function accepts may be an argument; the replay sees the same arguments again. Anything that the
function returns comes back.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause


@clause("IO-01", MUST, argument=("number", "text", "none", "flag"))
def test_arguments_that_are_no_arrays_pass_through(under_test, argument):
    """Arguments that are no arrays, None included, reach the region unchanged in forward and in the replay.

    Source: torch.utils.checkpoint; pytorch/pytorch#63394; deepspeedai/DeepSpeed#598.
    """
    ops, probe = under_test.ops, under_test.probe()
    given = {"number": 3, "text": "exp", "none": None, "flag": True}[argument]

    def program(checkpoint, x):
        def region(x, setting):
            y = ops.sin(probe(x))
            return ops.exp(ops.multiply(y, 2.0)) if setting is given or setting == given else ops.cos(y)

        return checkpoint(region, x, given)

    under_test.run(program, under_test.array())


@clause("IO-02", MUST, profile=Profile.CORE, dtype=("int64", "bool"))
def test_integer_and_boolean_arrays_are_arguments_like_others(under_test, dtype):
    """Integer and boolean arrays may be arguments; the others get their gradients.

    Source: deepspeedai/DeepSpeed#1376.
    """
    ops, probe = under_test.ops, under_test.probe()
    mask = under_test.array(1, 0, 1, 1, dtype=dtype)

    def program(checkpoint, x):
        def region(x, mask):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), ops.astype(mask, "float64")))

        return checkpoint(region, x, mask)

    under_test.run(program, under_test.array())


@clause("IO-03", MUST, tests=Capability.KEYWORDS)
def test_keyword_arguments_get_their_gradients(under_test):
    """An array given by keyword reaches the region and gets its gradient.

    Source: torch.utils.checkpoint; pytorch/pytorch#80987.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, *, scale):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), scale))

        return checkpoint(region, x, scale=w)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("IO-04", MUST, tests=Capability.NESTED_ARGUMENTS, container=("list", "tuple", "dict", "dict of lists"))
def test_arrays_in_containers_get_their_gradients(under_test, container):
    """Arrays inside containers among the arguments take part in differentiation.

    Source: torch.utils.checkpoint, `use_reentrant`; unslothai/unsloth-zoo#1038.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, box):
            if container == "dict of lists":
                w = box["w"][0]
            elif container == "dict":
                w = box["w"]
            else:
                w = box[0]
            # The sum keeps a lost gradient from being an error.
            return ops.add(ops.tanh(ops.multiply(ops.sin(probe(x)), w)), x)

        box = {"list": [w], "tuple": (w,), "dict": {"w": w}, "dict of lists": {"w": [w]}}[container]
        return checkpoint(region, x, box)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("IO-05", MUST, tests=Capability.STRUCTURED_RESULTS, result=("list", "dict", "none inside", "nested"))
def test_results_may_have_any_structure(under_test, result):
    """A region may return containers, with None among their values; the arrays in them are differentiable.

    Source: torch.utils.checkpoint, `use_reentrant`; PaddlePaddle/Paddle#62957.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.sin(probe(x)))
            z = ops.cos(y)
            return {
                "list": [y, z],
                "dict": {"y": y, "z": z},
                "none inside": (y, None, z),
                "nested": {"y": [y, (z,)]},
            }[result]

        return checkpoint(region, x)

    under_test.run(program, under_test.array())


@clause("IO-06", MUST, tests=Capability.STRUCTURED_RESULTS, result=("list", "dict"))
def test_results_in_containers_are_not_silently_cut_off(under_test, result):
    """An array in a container that a region returns carries its gradient, also where other paths would hide a loss.

    Source: pytorch/pytorch#124725.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.sin(probe(x)))
            return [y] if result == "list" else {"y": y}

        box = checkpoint(region, x)
        return ops.add(x, box[0] if result == "list" else box["y"])

    under_test.run(program, under_test.array())


@clause("IO-07", MAY, needs=(Fact.EAGER,))
def test_containers_are_handed_on_not_copied(under_test):
    """A replay is given the containers that forward was given, not copies of them.

    Not promised: that a function which empties a list among its arguments can be replayed.
    Source: torch.utils.checkpoint; huggingface/transformers#46572.
    """
    ops, probe, given = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        given.clear()

        def region(x, box):
            given.append(box)
            return ops.exp(ops.sin(ops.multiply(probe(x), box["scale"])))

        return checkpoint(region, x, {"scale": 2.0})

    under_test.run(program, under_test.array())

    assert all(box is given[0] for box in given), "the replay was given another container"


@clause(
    "IO-08", SHOULD, tests=Capability.SAME_ARGUMENTS, needs=(Fact.EAGER,), how=("positional", "keyword", "in a list")
)
def test_a_replay_is_given_the_same_arrays(under_test, how):
    """An array among the arguments is in the replay the very object that it was in forward, attributes included.

    Not promised: the same object where saved values pass through hooks, as inside another region.
    Source: torch.utils.checkpoint, `use_reentrant`; PaddlePaddle/Paddle#70508.
    """
    ops, probe, given = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        given.clear()

        def region(x):
            given.append(x)
            return ops.exp(ops.sin(probe(x)))

        if how == "keyword":
            return checkpoint(region, x=x)
        return checkpoint(lambda box: region(box[0]), [x]) if how == "in a list" else checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert all(x is given[0] for x in given), "the replay was given another array"


@clause("IO-09", MUST, needs=(Fact.EAGER, Fact.GRADIENT_FLAGS))
def test_arguments_need_a_gradient_in_the_replay_as_in_forward(under_test):
    """An argument needs a gradient in the replay if, and only if, it does in forward.

    Source: torch.utils.checkpoint; PaddlePaddle/Paddle#62979.
    """
    ops, probe, flags, data = under_test.ops, under_test.probe(), [], under_test.array(1.0, 2.0, 3.0, 4.0)

    def program(checkpoint, x, w):
        flags.clear()

        def region(x, data, w):
            flags.append([under_test.needs_gradient(a) for a in (x, data, w)])
            return ops.exp(ops.multiply(ops.sin(probe(x)), ops.multiply(data, w)))

        return checkpoint(region, x, data, under_test.stop_gradient(w))

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))

    assert all(found == [True, False, False] for found in flags), "an argument's flag changed in the replay"


@clause("IO-10", MUST, profile=Profile.CORE)
def test_a_region_may_return_its_argument(under_test):
    """A region may return an argument unchanged, beside other results.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        same, y = checkpoint(lambda x: (x, ops.exp(ops.sin(probe(x)))), x)
        return ops.multiply(same, y)

    under_test.run(program, under_test.array())


@clause("IO-11", MUST, profile=Profile.CORE, used=("both", "first", "second"))
def test_a_region_may_have_several_results(under_test, used):
    """Each of several results carries its gradient, whether the program uses all of them or one.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            return ops.exp(ops.multiply(y, 2.0)), ops.tanh(ops.cos(y))

        first, second = checkpoint(region, x)
        return {"both": (first, second), "first": first, "second": second}[used]

    under_test.run(program, under_test.array())


@clause("IO-12", MUST, tests=Capability.KEYWORDS, keyword=("number", "text", "none", "flag"))
def test_keyword_arguments_that_are_no_arrays_pass_through(under_test, keyword):
    """Keyword arguments that are no arrays, None included, reach the region unchanged in forward and in the replay.

    Source: torch.utils.checkpoint; tensorflow/tensorflow#56692.
    """
    ops, probe = under_test.ops, under_test.probe()
    given = {"number": 3, "text": "exp", "none": None, "flag": True}[keyword]

    def program(checkpoint, x):
        def region(x, *, setting):
            y = ops.sin(probe(x))
            return ops.exp(ops.multiply(y, 2.0)) if setting is given or setting == given else ops.cos(y)

        return checkpoint(region, x, setting=given)

    under_test.run(program, under_test.array())


@clause("IO-13", MUST, captured=("a primal", "a constant"))
def test_a_region_may_return_what_it_captured(under_test, captured):
    """A region may return an array that it captured, beside other results; the array is afterwards what it was before.

    Source: found by drawn programs (FUZZ-01).
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        outside = w if captured == "a primal" else under_test.stop_gradient(w)

        def region(x):
            assert probe.executions < 20, "the region is replayed without end"
            return outside, ops.exp(ops.sin(probe(x)))

        same, y = checkpoint(region, x)
        return ops.multiply(ops.multiply(same, y), outside)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))
