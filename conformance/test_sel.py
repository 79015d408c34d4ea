"""SEL: selective checkpointing.

A policy says which results of a region are saved after all. It changes what is executed again and what is held, never
a value.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause


@clause("SEL-01", MUST, tests=Capability.POLICY_BY_OP)
def test_a_saved_operation_is_not_executed_again(under_test):
    """An operation whose result the policy saves is not executed in the replay; without the policy it is.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.exp(ops.sin(probe(ops.exp(x))))

    def program(checkpoint, x):
        return checkpoint.using(save=["probe"])(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    saved = under_test.run(program, under_test.array(), replays=0)
    under_test.run(without, under_test.array())

    assert saved.forward[probe] == 1, "forward ran a saved operation more than once"
    assert saved.backward[probe] == 0, "a saved operation was executed again"


@clause("SEL-02", MUST, tests=Capability.POLICY_BY_OP, save=("sin", "exp", "multiply", "matmul", "tanh", "all"))
def test_no_policy_changes_a_value(under_test, save):
    """Whatever operations a policy saves, values and gradients of a pure function are those of the plain call.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()
    saved = ["sin", "exp", "multiply", "matmul", "tanh"] if save == "all" else [save]

    def program(checkpoint, x, w):
        def region(x, w):
            y = ops.tanh(ops.matmul(ops.sin(probe(x)), w))
            return ops.exp(ops.sin(ops.multiply(y, y)))

        return checkpoint.using(save=saved)(region, x, w)

    under_test.run(program, under_test.array(shape=(4, 3)), under_test.array(shape=(3, 2)))


@clause("SEL-03", MUST, tests=Capability.POLICY_FUNCTION)
def test_a_policy_is_asked_in_forward_only(under_test):
    """A policy function decides during forward; a replay follows its decisions without asking again.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#176450.
    """
    ops, probe, phases = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def policy(operation):
            phases.append(under_test.phase)
            return operation == "exp"

        return checkpoint.using(policy=policy)(lambda x: ops.sin(ops.exp(ops.sin(probe(x)))), x)

    under_test.run(program, under_test.array())

    assert "forward" in phases, "the policy was never asked"
    assert "backward" not in phases, "the policy was asked during backward"


@clause("SEL-07", MUST, tests=Capability.POLICY_BY_OP)
def test_a_policy_that_saves_nothing_is_no_policy(under_test):
    """With a policy that saves nothing, a region is executed as often as without a policy.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint.using(save=[])(lambda x: ops.exp(ops.sin(probe(x))), x)

    seen = under_test.run(program, under_test.array())

    assert seen.forward[probe] == 1, "forward ran the region more than once"
    assert seen.backward[probe] == 1, "backward ran the region more than once"


@clause("SEL-14", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.RETAIN,))
def test_a_second_backward_over_saved_results_is_no_wrong_gradient(under_test):
    """A second backward through a region with saved results gives the right gradient or an error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#142862.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint.using(save=["exp"])(lambda x: ops.sin(ops.exp(ops.cos(probe(x)))), x)

    def backward(pull):
        return pull(retain=True), pull()

    under_test.run(program, under_test.array())
    under_test.attempt(program, under_test.array(), backward=backward)


@clause("SEL-21", MUST, tests=Capability.POLICY_FUNCTION)
def test_each_execution_of_an_operation_has_its_own_decision(under_test):
    """A policy may save one execution of an operation and not the next; the replay keeps them apart.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#176450.
    """
    ops, first, second = under_test.ops, under_test.probe("first"), under_test.probe("second")

    def program(checkpoint, x):
        asked = []

        def policy(operation):
            if operation == "probe":
                asked.append(operation)
            return operation == "probe" and len(asked) == 1

        def region(x):
            y = first(ops.exp(ops.sin(x)))
            return ops.sin(ops.exp(second(ops.cos(y))))

        return checkpoint.using(policy=policy)(region, x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[first] == 0, "the saved execution was executed again"
    assert seen.backward[second] == 1, "the execution that was not saved was not executed again"


@clause("SEL-28", MUST, tests=Capability.POLICY_BY_NAME)
def test_a_named_value_can_be_saved(under_test):
    """What computes a value that is saved by its name is not executed again, where nothing else needs it.

    Source: jax.checkpoint_policies.save_only_these_names.
    """
    ops, before, after = under_test.ops, under_test.probe("before"), under_test.probe("after")

    def program(checkpoint, x):
        def region(x):
            y = under_test.named(ops.add(before(x), 1.0), "kept")
            return ops.sin(ops.exp(after(ops.cos(y))))

        return checkpoint.using(save_names=["kept"])(region, x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[before] == 0, "what computes a saved value was executed again"
