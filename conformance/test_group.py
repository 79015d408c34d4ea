"""GROUP: several backward calls that share their replays.

Pipelines differentiate one graph piece by piece. Within a group each region is replayed once for all the calls, which
must need disjoint values. Outside of a group each call replays for itself.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause

GROUP = Capability.GROUP
SEPARATE = (Fact.SEPARATE_OUTPUTS,)
AGAIN = (Fact.SEPARATE_OUTPUTS, Fact.RETAIN)


@clause("GROUP-01", MUST, tests=GROUP, needs=SEPARATE)
def test_a_group_replays_a_region_once(under_test):
    """Within a group, backward calls that need disjoint values of a region share one replay of it.

    Source: torch.utils.checkpoint, `GraphExecGroup`; pytorch/pytorch#166536.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0)), ops.cos(ops.multiply(x, 4.0))

        groups["one"] = checkpoint.group()
        return checkpoint(region, x)

    def backward(pull):
        with groups["one"]:
            return [pull(outputs=[i]) for i in range(3)]

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[probe] == 1, "calls within a group did not share their replay"


@clause("GROUP-02", MUST, tests=GROUP, needs=SEPARATE)
def test_a_group_gives_the_gradients_of_separate_calls(under_test):
    """Within a group each call's gradients are those of the plain graph, also where it goes through several regions.

    Source: torch.utils.checkpoint, `GraphExecGroup`; pytorch/pytorch#136766.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x, w):
        def first(x):
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0))

        def second(x, y):
            return ops.tanh(ops.multiply(probe(x), w)), ops.exp(ops.sin(y))

        groups["one"] = checkpoint.group()
        return checkpoint(second, *checkpoint(first, x))

    def backward(pull):
        with groups["one"]:
            return pull(outputs=[1]), pull(outputs=[0])

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25), backward=backward)


@clause("GROUP-03", MUST, tests=GROUP, needs=AGAIN)
def test_calls_that_overlap_within_a_group_are_right_or_refused(under_test):
    """Where a call within a group needs a value that an earlier one used, its gradient is right or there is an error;
    outside of the group the graph can be differentiated as before.

    Source: torch.utils.checkpoint, `GraphExecGroup`.
    """
    ops, probe, groups, refused = under_test.ops, under_test.probe(), {}, []

    def program(checkpoint, x):
        groups["one"] = checkpoint.group()
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def overlapping(pull):
        with groups["one"]:
            return pull(retain=True), pull(retain=True)

    def afterwards(pull):
        with groups["one"]:
            pull(retain=True)
            try:
                pull(retain=True)
            except Exception as error:
                refused.append(error)
        return pull()

    under_test.attempt(program, under_test.array(), backward=overlapping)
    under_test.run(program, under_test.array(), backward=afterwards)


@clause("GROUP-04", MUST, tests=GROUP, needs=SEPARATE)
def test_a_group_within_a_group_leaves_the_outer_one_active(under_test):
    """A group entered within another may be refused; either way the calls of the outer one go on sharing their replay.

    Source: torch.utils.checkpoint, `GraphExecGroup`.
    """
    ops, probe, groups, refused = under_test.ops, under_test.probe(), {}, []

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0))

        groups["outer"], groups["inner"] = checkpoint.group(), checkpoint.group()
        return checkpoint(region, x)

    def backward(pull):
        with groups["outer"]:
            first = pull(outputs=[0])
            try:
                with groups["inner"]:
                    refused.append(False)
            except Exception:
                refused.append(True)
            return first, pull(outputs=[1])

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[probe] == 1, "the outer group was not active any more"


@clause("GROUP-05", MUST, tests=GROUP, needs=AGAIN, left=("normally", "by an exception"))
def test_a_group_ends_where_it_is_left(under_test, left):
    """After a group was left, also by an exception, backward calls are on their own again and may overlap.

    Source: torch.utils.checkpoint, `GraphExecGroup`.
    """
    ops, probe, groups, caught = under_test.ops, under_test.probe(), {}, []

    def program(checkpoint, x):
        groups["one"] = checkpoint.group()
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        try:
            with groups["one"]:
                pull(retain=True)
                if left == "by an exception":
                    raise KeyError
        except KeyError as error:
            caught.append(error)
        return pull(retain=True), pull(retain=True)

    under_test.run(program, under_test.array(), backward=backward)


@clause("GROUP-06", MUST, tests=GROUP, needs=AGAIN)
def test_a_group_may_be_entered_again(under_test):
    """Entering the same group again shares its replays; another group is on its own, and may need the same values.

    Source: torch.utils.checkpoint, `GraphExecGroup`.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0))

        groups["one"], groups["other"] = checkpoint.group(), checkpoint.group()
        return checkpoint(region, x)

    def backward(pull):
        with groups["one"]:
            first = pull(outputs=[0], retain=True)
        with groups["one"]:
            return first, pull(outputs=[1], retain=True)

    def with_another(pull):
        with groups["one"]:
            first = pull(outputs=[0], retain=True)
        with groups["other"]:
            return first, pull(outputs=[0], retain=True)

    seen = under_test.run(program, under_test.array(), backward=backward)
    under_test.run(program, under_test.array(), backward=with_another)

    assert seen.backward[probe] == 1, "a group that was entered again did not share its replay"


@clause("GROUP-07", MUST, tests=(GROUP, Capability.REENTRANT), needs=SEPARATE)
def test_the_reentrant_form_takes_no_notice_of_a_group(under_test):
    """In the reentrant form backward calls within a group are as outside of it: each region is replayed for itself.

    Source: torch.utils.checkpoint, `GraphExecGroup`, `use_reentrant`.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        groups["one"] = checkpoint.group()
        return [checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x) for _ in range(3)]

    def backward(pull):
        with groups["one"]:
            return [pull(outputs=[i]) for i in range(3)]

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[probe] == 3, "a region was not replayed once"


@clause("GROUP-08", MUST, tests=GROUP, needs=(*AGAIN, Fact.THREADS))
def test_a_group_is_that_of_its_thread(under_test):
    """A backward call from another thread is outside of the group, and may need the values that the group has used.

    Not promised: that an accelerator's own backward threads are outside; they belong to the calling thread.
    Source: torch.utils.checkpoint, `GraphExecGroup`.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        groups["one"] = checkpoint.group()
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        with groups["one"]:
            return pull(retain=True), under_test.in_threads(lambda: pull(retain=True))

    under_test.run(program, under_test.array(), backward=backward)


@clause("GROUP-09", MUST, tests=(GROUP, Capability.POLICY_BY_OP), needs=SEPARATE)
def test_a_group_over_a_region_with_saved_results(under_test):
    """Within a group, backward calls that need disjoint values may share a region in which a policy saves results.

    Source: torch.utils.checkpoint, `GraphExecGroup`, `create_selective_checkpoint_contexts`.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        def region(x):
            return ops.sin(probe(ops.exp(x))), ops.cos(ops.multiply(x, 3.0))

        groups["one"] = checkpoint.group()
        return checkpoint.using(save=["exp"])(region, x)

    def backward(pull):
        with groups["one"]:
            return pull(outputs=[0]), pull(outputs=[1])

    under_test.run(program, under_test.array(), backward=backward)


@clause("GROUP-10", MUST, tests=(GROUP, Capability.NO_EARLY_STOP), needs=SEPARATE)
def test_a_group_shares_replays_that_run_to_the_end(under_test):
    """Within a group, replays that do not end early are shared as well.

    Source: torch.utils.checkpoint, `GraphExecGroup`, `early_stop`.
    """
    ops, probe, groups = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        def region(x):
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0))

        groups["one"] = checkpoint.group()
        return checkpoint.using(early_stop=False)(region, x)

    def backward(pull):
        with groups["one"]:
            return pull(outputs=[0]), pull(outputs=[1])

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[probe] == 1, "calls within a group did not share their replay"


@clause("GROUP-11", MUST, tests=GROUP, needs=(*SEPARATE, Fact.RELEASE))
def test_a_group_keeps_nothing_of_a_graph_that_is_gone(under_test):
    """What a region refers to is released with the program's outputs, though a group that shared its replay lives on,
    and without a garbage collection.

    Source: torch.utils.checkpoint, `GraphExecGroup`.
    """
    ops, probe, groups, alive = under_test.ops, under_test.probe(), [], []

    class Captured:
        pass

    def program(checkpoint, x):
        captured = Captured()
        alive.append(under_test.watch(captured))

        def region(x):
            assert captured is not None
            x = probe(x)
            return ops.sin(ops.multiply(x, 2.0)), ops.exp(ops.multiply(x, 3.0))

        groups.append(checkpoint.group())
        return checkpoint(region, x)

    def backward(pull):
        with groups[-1]:
            return pull(outputs=[0])  # the second output's value stays with the group

    under_test.run(program, under_test.array(), backward=backward)

    assert not any(is_alive() for is_alive in alive), "what the region captured is alive after the outputs are gone"
