"""MUT: mutation of arguments, captures and intermediates.

A replay starts from what the region was given, as it is by then. What was changed in place in between makes it another
computation, and what a plain run would notice by itself may pass unseen: so the gradient is right, or there is an
error. Changes that the plain run allows, of results and of the region's own values, are allowed here too.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, clause

IN_PLACE = (Fact.IN_PLACE,)


@clause("MUT-01", MUST, needs=IN_PLACE, region=("sum", "product"))
def test_an_argument_changed_after_forward_is_no_wrong_gradient(under_test, region):
    """Where an argument is changed in place between forward and backward, the gradient is that of the forward or there
    is an error.

    Source: torch.utils.checkpoint; the plain run refuses the product and is right on the sum.
    """
    ops, probe = under_test.ops, under_test.probe()

    def unchanged(checkpoint, x):
        other = under_test.array(2.0, 3.0, 4.0, 5.0)

        def function(x, other):
            y = ops.add(probe(x), other) if region == "sum" else ops.multiply(probe(x), other)
            return ops.cos(ops.sin(y))

        return checkpoint(function, x, other), other

    def program(checkpoint, x):
        y, other = unchanged(checkpoint, x)
        ops.add_(other, 1.0)
        return y

    def without_change(checkpoint, x):
        return unchanged(checkpoint, x)[0]

    under_test.run(without_change, under_test.array())
    under_test.attempt(program, under_test.array(), plain=without_change)


@clause("MUT-02", MUST, needs=IN_PLACE, argument=("differentiable", "constant"))
def test_a_region_that_changes_its_argument_is_no_wrong_gradient(under_test, argument):
    """Where a region changes an argument in place, the gradient is right or there is an error.

    Not promised: that it works, although the plain run does.
    Source: torch.utils.checkpoint; hpcaitech/ColossalAI#1460.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, *, change=ops.add_):
        h, constant = ops.cos(x), under_test.array(2.0, 3.0, 4.0, 5.0)

        def region(h, constant):
            if argument == "differentiable":
                h = change(h, 1.0)
            else:
                constant = change(constant, 1.0)
            return ops.exp(ops.sin(ops.multiply(probe(h), constant)))

        return checkpoint(region, h, constant)

    def out_of_place(checkpoint, x):
        return program(checkpoint, x, change=ops.add)

    under_test.run(out_of_place, under_test.array())
    under_test.attempt(program, under_test.array())


@clause(
    "MUT-03",
    SHOULD,
    tests=(Capability.KEYWORDS, Capability.NESTED_ARGUMENTS),
    needs=IN_PLACE,
    given=("as a keyword", "in a list", "in a dict"),
)
def test_a_keyword_or_nested_argument_changed_after_forward_is_no_wrong_gradient(under_test, given):
    """An in-place change between forward and backward is noticed also in keyword arguments and in containers: the
    gradient is that of the forward or there is an error.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def unchanged(checkpoint, x):
        other = under_test.array(2.0, 3.0, 4.0, 5.0)

        def region(x, others=None, *, other=None):
            if given == "in a list":
                other = others[0]
            elif given == "in a dict":
                other = others["inside"][0]
            return ops.cos(ops.sin(ops.add(probe(x), other)))

        if given == "as a keyword":
            return checkpoint(region, x, other=other), other
        return checkpoint(region, x, [other] if given == "in a list" else {"inside": (other,)}), other

    def program(checkpoint, x):
        y, other = unchanged(checkpoint, x)
        ops.add_(other, 1.0)
        return y

    def without_change(checkpoint, x):
        return unchanged(checkpoint, x)[0]

    under_test.run(without_change, under_test.array())
    under_test.attempt(program, under_test.array(), plain=without_change)


@clause("MUT-04", SHOULD, needs=IN_PLACE, given=("as an argument", "captured"))
def test_a_parameter_updated_before_backward_is_no_wrong_gradient(under_test, given):
    """Where a parameter that the region multiplies by is updated between forward and backward, which a plain backward
    refuses, the gradient is that of the forward or there is an error.

    Not promised: that an update is noticed of which the operations save nothing, such as that of a summand.
    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def without_update(checkpoint, x, w):
        def region(x, w):
            return ops.cos(ops.sin(ops.multiply(probe(x), w)))

        return checkpoint(region, x, w) if given == "as an argument" else checkpoint(lambda x: region(x, w), x)

    def program(checkpoint, x, w):
        y = without_update(checkpoint, x, w)
        ops.add_(under_test.stop_gradient(w), 1.0)
        return y

    primals = under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25)
    under_test.run(without_update, *primals)
    under_test.attempt(program, *primals, plain=without_update)


@clause("MUT-05", MUST, needs=IN_PLACE, overwritten=("by the last operation", "before another"))
def test_a_saved_value_that_the_region_overwrites_is_no_wrong_gradient(under_test, overwritten):
    """Where a region changes in place a value that its backward needs, which a plain backward refuses, the gradient is
    that of the same computation without in-place changes or there is an error.

    Source: torch.utils.checkpoint, `early_stop`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, *, add=ops.add_):
        def region(x):
            y = ops.exp(probe(x))
            y = add(y, 1.0)  # exp has saved its result
            return y if overwritten == "by the last operation" else ops.sin(y)

        return checkpoint(region, x)

    def out_of_place(checkpoint, x):
        return program(checkpoint, x, add=ops.add)

    under_test.run(out_of_place, under_test.array())
    under_test.attempt(program, under_test.array(), plain=out_of_place)


@clause("MUT-06", MUST, needs=IN_PLACE)
def test_a_result_may_be_changed_in_place(under_test):
    """A region's result may be changed in place where the plain one may.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        y = checkpoint(lambda x: ops.sin(ops.exp(probe(x))), x)
        y = ops.add_(y, ops.cos(w))
        return ops.exp(y)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("MUT-07", MAY, needs=(Fact.EAGER,))
def test_a_replay_reads_a_list_as_it_is_by_then(under_test):
    """A container among the arguments need not be copied: a replay may find in it what was put there after forward.

    Source: torch.utils.checkpoint.
    """
    ops, probe, read = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        scale = [2.0]

        def region(x, scale):
            read.append(scale[0])
            return ops.exp(ops.sin(ops.multiply(probe(x), scale[0])))

        y = checkpoint(region, x, scale)
        scale[0] = 3.0
        return y

    def backward(pull):
        pull()  # its value is that of another computation

    under_test.run(program, under_test.array(), backward=backward)

    assert read[-1] == 3.0, "the replay was given a copy of the list"


@clause("MUT-09", MUST, needs=IN_PLACE)
def test_a_region_may_change_its_own_values_in_place(under_test):
    """A region may change in place what it made itself, where its backward does not need the old value.

    Source: torch.utils.checkpoint; pytorch/pytorch#26546.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, w):
            y = ops.sin(probe(x))
            ops.add_(y, ops.multiply(w, w))
            z = ops.cos(y)
            ops.add_(z, 0.5)
            return ops.exp(ops.sin(z))

        return checkpoint(region, x, w)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("MUT-10", SHOULD, needs=IN_PLACE)
def test_a_captured_array_changed_after_forward_is_no_wrong_gradient(under_test):
    """Where a captured array that the region multiplies by is changed between forward and backward, which a plain
    backward refuses, the gradient is that of the forward or there is an error.

    Not promised: that a change is noticed of which the operations save nothing, such as that of a summand.
    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def unchanged(checkpoint, x):
        other = under_test.array(2.0, 3.0, 4.0, 5.0)
        return checkpoint(lambda x: ops.cos(ops.sin(ops.multiply(probe(x), other))), x), other

    def program(checkpoint, x):
        y, other = unchanged(checkpoint, x)
        ops.add_(other, 1.0)
        return y

    def without_change(checkpoint, x):
        return unchanged(checkpoint, x)[0]

    under_test.run(without_change, under_test.array())
    under_test.attempt(program, under_test.array(), plain=without_change)
