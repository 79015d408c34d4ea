"""RETAIN: backward more than once.

A graph that is kept can be differentiated again: each backward replays what it needs, once. A graph that is not kept
is gone, with a region in it as without.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, clause

RETAIN = (Fact.RETAIN,)


@clause("RETAIN-01", MUST, needs=RETAIN, regions=("one", "a chain", "nested"))
def test_each_backward_over_a_kept_graph_gives_the_gradient(under_test, regions):
    """Several backward calls over a kept graph give the same gradient each time, and none replays a region twice.

    Not promised: that each replays; a form that keeps what it recomputed is judged by what it holds.

    Source: torch.utils.checkpoint; openai/guided-diffusion#144; zhanghang1989/PyTorch-Encoding#76.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, w):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), w))

        def outer(x, w):
            return ops.exp(ops.sin(checkpoint(lambda x, w: ops.exp(ops.sin(ops.multiply(x, w))), region(x, w), w)))

        if regions == "nested":
            return checkpoint(outer, x, w)
        y = checkpoint(region, x, w)
        return ops.exp(checkpoint(lambda y: ops.sin(ops.exp(y)), y)) if regions == "a chain" else y

    def backward(pull):
        return pull(retain=True), pull(retain=True), pull()

    seen = under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25), backward=backward)

    assert seen.backward[probe] <= 3, "a backward replayed a region more than once"


@clause("RETAIN-02", MUST, needs=RETAIN)
def test_a_second_backward_ends_as_the_plain_one_does(under_test):
    """Where the graph was not kept, a second backward fails, with the plain run's type of error, if the plain one does.

    Source: torch.utils.checkpoint.
    """
    ops, probe, ends = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        first = pull()
        try:
            pull()
        except Exception as error:
            ends.append(type(error))
        else:
            ends.append(None)
        return first

    under_test.run(program, under_test.array(), backward=backward)

    assert ends[-1] == ends[0], "the second backward does not end as the plain one does"


@clause("RETAIN-03", SHOULD, needs=(Fact.RETAIN, Fact.IN_PLACE), given=("as an argument", "captured"))
def test_a_parameter_updated_between_two_backwards_is_no_wrong_gradient(under_test, given):
    """Where a parameter that the region multiplies by is updated between two backward calls, of which a plain run
    refuses the second, the second gradient is that of the forward or there is an error.

    Not promised: that an update is noticed of which the operations save nothing, such as that of a summand.
    Source: torch.utils.checkpoint.
    """
    ops, probe, updated = under_test.ops, under_test.probe(), []

    def without_update(checkpoint, x, w):
        updated[:] = []

        def region(x, w):
            return ops.cos(ops.sin(ops.multiply(probe(x), w)))

        return checkpoint(region, x, w) if given == "as an argument" else checkpoint(lambda x: region(x, w), x)

    def program(checkpoint, x, w):
        y = without_update(checkpoint, x, w)
        updated.append(w)
        return y

    def backward(pull):
        first = pull(retain=True)
        for w in updated:
            ops.add_(under_test.stop_gradient(w), 1.0)
        return first, pull()

    primals = under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25)
    under_test.run(without_update, *primals, backward=backward)
    under_test.attempt(program, *primals, backward=backward, plain=without_update)


@clause("RETAIN-04", MUST, tests=Capability.EARLY_STOP, needs=RETAIN)
def test_a_region_that_saves_nothing_allows_what_plain_allows(under_test):
    """Over a region that saves nothing, a second backward ends as the plain one does, also if the graph was not kept.

    Source: pytorch/pytorch#96866.
    """
    ops, linear, probe, ends = under_test.ops, under_test.probe("linear"), under_test.probe(), []

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.add(ops.negative(linear(x)), 1.0), x)

    def with_replay(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        first = pull()
        try:
            pull()
        except Exception:
            ends.append("an error")
        else:
            ends.append("a gradient")
        return first

    under_test.run(with_replay, under_test.array())
    under_test.attempt(program, under_test.array(), replays=0, backward=backward)

    assert ends[-1] == ends[0], "the second backward does not end as the plain one does"
