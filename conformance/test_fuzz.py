"""FUZZ: programs nobody wrote by hand.

Clauses catch the faults that someone thought of; the ones that hurt are combinations. Each clause here is a property of
all programs, tried on drawn ones: regions anywhere, nested, with captures, keywords, options, random and in-place
operations. A failure comes with the smallest program that was found.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause

#: The order in which contributions to one array are added may differ, and with it the last bits.
ORDER = 1e-9


@clause("FUZZ-01", MUST, tests=Capability.FREE_CAPTURES)
def test_any_program_equals_its_plain_run(under_test):
    """Values and gradients of any program of pure operations are those of the plain run.

    Source: torch.utils.checkpoint, first paragraph.
    """

    def check(program, primals, block):
        under_test.run(program, *primals, replays=0, tolerance=ORDER)

    under_test.explore(check)


@clause("FUZZ-02", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.GLOBAL_RANDOM,))
def test_any_random_program_equals_its_plain_run(under_test):
    """Values and gradients of any program with random operations are those of the plain run, and so is the generator
    afterwards, with draws between forward and backward.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, like = under_test.ops, under_test.array(shape=(3,))

    def check(program, primals, block):
        def backward(pull):
            return ops.uniform_like(like), pull(), ops.uniform_like(like)

        under_test.run(program, *primals, replays=0, tolerance=ORDER, backward=backward)

    under_test.explore(check, random=True)


@clause("FUZZ-03", MUST, tests=Capability.FREE_CAPTURES)
def test_any_region_is_executed_once_in_forward_and_once_a_level_in_backward(under_test):
    """In any program, forward executes each region once, and backward at most as often as it is deep.

    Source: torch.utils.checkpoint; pytorch/pytorch#90105.
    """

    def check(program, primals, block):
        seen = under_test.run(program, *primals, replays=0, tolerance=ORDER)
        for probe, executions in seen.plain.forward.items():
            assert seen.forward[probe] <= executions, "forward executed a region more than once"
            assert seen.backward[probe] <= block.executions(), "backward executed a region more often than it is deep"

    under_test.explore(check)


@clause("FUZZ-04", MUST, tests=(Capability.FREE_CAPTURES, Capability.NO_EARLY_STOP))
def test_no_option_changes_a_value(under_test):
    """Whatever options its regions have, values and gradients of any program are those of the plain run.

    Source: torch.utils.checkpoint, `early_stop`, `determinism_check`.
    """

    def check(program, primals, block):
        under_test.run(program, *primals, replays=0, tolerance=ORDER)

    under_test.explore(check, options={"early_stop": (True, False), "preserve_rng_state": (True, False)})


@clause("FUZZ-05", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.RETAIN,))
def test_any_program_can_be_differentiated_twice(under_test):
    """A second backward through any program gives the gradients of the first.

    Source: torch.utils.checkpoint.
    """

    def check(program, primals, block):
        under_test.run(program, *primals, replays=0, tolerance=ORDER, backward=lambda pull: (pull(retain=True), pull()))

    under_test.explore(check)


@clause("FUZZ-06", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.GLOBAL_RANDOM,))
def test_no_policy_changes_a_value_of_any_random_program(under_test):
    """Whatever a policy saves, values and gradients of any program with random operations are those of the plain run.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    saved = (["uniform_like"], ["uniform_like", "sin", "multiply"], ["exp", "matmul", "reshape"])

    def check(program, primals, block):
        under_test.run(program, *primals, replays=0, tolerance=ORDER)

    under_test.explore(check, random=True, options={"save": saved}, depth=2)


@clause("FUZZ-07", MUST, tests=Capability.FREE_CAPTURES, needs=(Fact.IN_PLACE,))
def test_in_place_operations_are_right_or_refused(under_test):
    """Where a region changes arrays of its own in place and the plain run is defined, the gradients are right or there
    is an error.

    Not promised: anything about regions that change what they captured; the replay changes it again.
    Source: torch.utils.checkpoint; pytorch/pytorch#119590.
    """

    def check(program, primals, block):
        under_test.attempt(program, *primals, replays=0, tolerance=ORDER)

    under_test.explore(check, in_place=True)


@clause("FUZZ-08", MUST, tests=Capability.HIGHER_ORDER, needs=(Fact.HIGHER_ORDER,))
def test_gradients_of_gradients_of_any_program_equal_the_plain_ones(under_test):
    """Gradients of gradients of any program are those of the plain run.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """

    def check(program, primals, block):
        first, *others = primals

        def slope(checkpoint, x):
            return under_test.gradient(lambda x: program(checkpoint, x, *others)[0])(x)

        under_test.run(slope, first, replays=0, tolerance=ORDER)

    under_test.explore(check, depth=2)


@clause("FUZZ-09", MUST, tests=Capability.POLICY_BY_OP)
def test_no_policy_changes_a_value_of_any_program(under_test):
    """Whatever a policy saves, values and gradients of any program of pure operations are those of the plain run.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    saved = (["sin", "cos", "exp", "tanh", "multiply", "add", "matmul"], ["sin", "multiply"], ["matmul", "reshape"])

    def check(program, primals, block):
        under_test.run(program, *primals, replays=0, tolerance=ORDER)

    under_test.explore(check, options={"save": saved}, depth=2)
