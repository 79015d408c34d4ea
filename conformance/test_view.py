"""VIEW: views as arguments and results.

A view shares its values with another array, and a change through one is a change of the other. Differentiation keeps
track of that in a plain run; a region between the two must not make it lose the track silently.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause

IN_PLACE = (Fact.IN_PLACE,)


@clause("VIEW-01", MUST, tests=Capability.FORWARD_GRAPH, needs=IN_PLACE, changed=("the view", "the argument"))
def test_a_view_that_a_region_returns_may_be_changed_in_place(under_test, changed):
    """A region may return a view of its argument; either may be changed in place afterwards, as in a plain run.

    Not promised: that it works where the region saved the argument for backward.
    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def change(h, view):
            if changed == "the view":
                ops.add_(view, 1.0)
            else:
                ops.add_(h, 1.0)
            return ops.multiply(ops.reshape(h, (2, 2)), view)

        h = ops.add(x, 1.0)
        y = under_test.noted(change, h, checkpoint(lambda h: ops.reshape(h, (2, 2)), h))
        return checkpoint(lambda y: ops.exp(ops.sin(probe(y))), y)

    under_test.run(program, under_test.array())


@clause("VIEW-02", MUST, needs=IN_PLACE, region=("saves nothing", "saves a value"))
def test_a_returned_view_changed_in_place_is_no_wrong_gradient(under_test, region):
    """Where a region returns a view of its argument and the program changes it in place, the gradient is right or there
    is an error.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, *, add=ops.add_):
        def function(h):
            view, other = ops.reshape(h, (2, 2)), probe(h)
            return view, other if region == "saves nothing" else ops.exp(ops.sin(ops.cos(other)))

        view, other = checkpoint(function, ops.add(x, 1.0))
        y = ops.multiply(add(view, 1.0), ops.reshape(other, (2, 2)))
        return checkpoint(lambda y: ops.exp(ops.sin(probe(y))), y)

    def out_of_place(checkpoint, x):
        return program(checkpoint, x, add=ops.add)

    under_test.run(out_of_place, under_test.array())
    under_test.attempt(program, under_test.array())


@clause("VIEW-03", MUST, needs=IN_PLACE, changed=("through the view", "after the view was taken"))
def test_a_region_may_return_a_changed_view_of_an_intermediate(under_test, changed):
    """A region may take a view of a value that it made, change either in place and return the view.

    Source: pytorch/pytorch#36383; pytorch/pytorch#26546.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            view = ops.reshape(y, (2, 2))
            ops.add_(view if changed == "through the view" else y, 1.0)
            return view

        return ops.exp(checkpoint(region, x))

    under_test.run(program, under_test.array())


@clause("VIEW-04", MUST, argument=("reshaped", "part", "broadcast", "transposed"))
def test_a_view_may_be_an_argument(under_test, argument):
    """An argument may be a view of another array, of which the program also uses the rest.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        h = ops.exp(x)
        view = {
            "reshaped": lambda: ops.reshape(h, (6,)),
            "part": lambda: h[1:, :2],
            "broadcast": lambda: ops.broadcast_to(h, (4, 2, 3)),
            "transposed": lambda: ops.permute_dims(h, (1, 0)),
        }[argument]()
        y = checkpoint(lambda view: ops.sum(ops.exp(ops.sin(probe(view)))), view)
        return ops.multiply(h, y)

    under_test.run(program, under_test.array(shape=(2, 3)))
