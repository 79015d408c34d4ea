"""FUZZ: programs nobody wrote by hand.

Clauses catch the faults that someone thought of; the ones that hurt are combinations. Each clause here is a property of
all programs, tried on drawn ones: regions anywhere, in loops and branches and in each other, with captures, keywords,
containers and options. They contain only what the implementation says it offers. A failure comes with the smallest
program that was found.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause


@clause("FUZZ-01", MUST, tests=Capability.FREE_CAPTURES)
def test_any_program_equals_its_plain_run(under_test):
    """Values and gradients of any program of pure operations are those of the plain run.

    Source: torch.utils.checkpoint, first paragraph.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check)


@clause("FUZZ-02", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.GLOBAL_RANDOM,))
def test_any_random_program_equals_its_plain_run(under_test):
    """Values and gradients of any program with random operations are those of the plain run, and so is the generator
    afterwards, with draws between forward and backward.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance, backward=drawn.backward)

    under_test.explore(check, random=True, ways=("between draws",))


@clause("FUZZ-03", MUST, tests=Capability.FREE_CAPTURES)
def test_any_region_is_executed_once_in_forward_and_once_a_level_in_backward(under_test):
    """In any program, forward executes each region once, and backward at most as often as it is deep.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """

    def check(program, primals, drawn):
        seen = under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)
        for probe, executions in seen.plain.forward.items():
            assert seen.forward[probe] <= executions, "forward executed a region more than once"
            assert seen.backward[probe] <= drawn.executions, "backward executed a region more often than it is deep"

    under_test.explore(check)


@clause("FUZZ-04", MUST, tests=(Capability.FREE_CAPTURES, Capability.NO_EARLY_STOP))
def test_no_option_changes_a_value(under_test):
    """Whatever options its regions have, values and gradients of any program are those of the plain run.

    Source: torch.utils.checkpoint, `early_stop`, `determinism_check`.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, options=("early_stop", "preserve_rng_state", "determinism_check"))


@clause("FUZZ-05", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.RETAIN,))
def test_any_program_can_be_differentiated_twice(under_test):
    """A second backward through any program gives the gradients of the first.

    Source: torch.utils.checkpoint.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance, backward=drawn.backward)

    under_test.explore(check, ways=("twice",))


@clause("FUZZ-06", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.GLOBAL_RANDOM,))
def test_no_policy_changes_a_value_of_any_random_program(under_test):
    """Whatever a policy saves, values and gradients of any program with random operations are those of the plain run.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, random=True, policies="lists")


@clause("FUZZ-07", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.IN_PLACE,))
def test_in_place_operations_are_right_or_refused(under_test):
    """Where a region changes arrays of its own in place and the plain run is defined, the gradients are right or there
    is an error.

    Not promised: anything about regions that change what they captured; the replay changes it again.
    Source: torch.utils.checkpoint; pytorch/pytorch#119590.
    """

    def check(program, primals, drawn):
        under_test.attempt(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, in_place=True)


@clause("FUZZ-08", MUST, tests=Capability.HIGHER_ORDER, needs=(Fact.HIGHER_ORDER,))
def test_gradients_of_gradients_of_any_program_equal_the_plain_ones(under_test):
    """Gradients of gradients of any program are those of the plain run.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops = under_test.ops

    def check(program, primals, drawn):
        first, *others = primals

        def slope(checkpoint, x):
            return under_test.gradient(lambda x: ops.square(program(checkpoint, x, *others)[0]))(x)

        under_test.run(slope, first, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check)


@clause("FUZZ-09", MUST, tests=Capability.POLICY_BY_OP)
def test_no_policy_changes_a_value_of_any_program(under_test):
    """Whatever a policy saves, values and gradients of any program of pure operations are those of the plain run.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, policies="lists")


@clause("FUZZ-10", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.HELD_BYTES,))
def test_nothing_of_any_program_is_held_after_its_backward(under_test):
    """After backward through any program no more bytes are held than after that of the plain run.

    Source: torch.utils.checkpoint; pytorch/pytorch#82482.
    """

    def check(program, primals, drawn):
        seen = under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance, memory=True)
        held, plain = seen.held.after_backward, seen.plain.held.after_backward
        assert held <= plain, "more is held after backward than by the plain run"

    under_test.explore(check, random=True)


@clause("FUZZ-11", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.RETAIN,))
def test_any_program_can_be_differentiated_in_any_way(under_test):
    """However backward goes through any program, whatever options its regions have, the gradients are those of the
    plain run: twice, over one output and then another, for one input and then all, with draws before and after.

    Source: torch.utils.checkpoint.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance, backward=drawn.backward)

    under_test.explore(
        check,
        random=True,
        also=("early_stop", "determinism_check"),
        ways=("in parts", "for one input", "between draws", "twice"),
    )


@clause("FUZZ-12", MUST, tests=Capability.GROUP, needs=(Fact.RETAIN, Fact.SEPARATE_OUTPUTS))
def test_a_group_of_backward_calls_is_right_or_refused(under_test):
    """Where several backward calls through any program share their replays, the gradients are right or there is an
    error; each region is replayed at most as often as it is deep for all of them.

    Source: torch.utils.checkpoint, `GraphExecGroup`; pytorch/pytorch#166536.
    """

    def check(program, primals, drawn):
        seen = under_test.attempt(program, *primals, replays=0, tolerance=drawn.tolerance, backward=drawn.backward)
        assert max(seen.backward.values(), default=0) <= drawn.executions, (
            "calls within a group did not share their replays"
        )

    under_test.explore(check, random=True, ways=("in a group",))


@clause("FUZZ-13", MUST, tests=Capability.POLICY_FUNCTION)
def test_no_decision_of_a_policy_changes_a_value_of_any_program(under_test):
    """Whatever a policy function decides, from one execution of an operation to the next, values and gradients of any
    program are those of the plain run.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, policies="functions")


@clause("FUZZ-14", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.TORCH_NAMES,))
def test_any_program_with_parts_under_autocast_equals_its_plain_run(under_test):
    """Values and gradients of any program whose parts run under autocast are those of the plain run.

    Source: torch.utils.checkpoint; pytorch/pytorch#71124.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, autocast=True)


@clause("FUZZ-15", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.RETAIN, Fact.EAGER))
def test_any_program_can_be_differentiated_after_a_replay_that_raised(under_test):
    """After a backward through any program that ended because a region raised in its replay, another backward gives the
    gradients of the plain run.

    Source: torch.utils.checkpoint; pytorch/pytorch#37874.
    """

    def check(program, primals, drawn):
        under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance, backward=drawn.backward)

    under_test.explore(check, random=True, ways=("after a failure",))


@clause("FUZZ-16", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.IN_PLACE,))
def test_policies_are_right_or_refused_where_arrays_change(under_test):
    """Where a region whose policy saves something changes arrays of its own in place, the gradients are right or there
    is an error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#119590.
    """

    def check(program, primals, drawn):
        under_test.attempt(program, *primals, replays=0, tolerance=drawn.tolerance)

    under_test.explore(check, in_place=True, policies="lists")
