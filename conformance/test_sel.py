"""SEL: selective checkpointing.

A policy says which results of a region are saved after all. It changes what is executed again and what is held, never
a value.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


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


@clause("SEL-04", MUST, tests=(Capability.POLICY_BY_OP, Capability.POLICY_FUNCTION))
def test_a_list_of_operations_is_a_policy_that_saves_these(under_test):
    """A list of operations saves what a policy function saves that chooses these operations and no other.

    Not promised: that other kinds of collection are accepted.
    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, saved, other = under_test.ops, under_test.probe("saved"), under_test.probe("other")

    def region(x):
        return ops.exp(ops.matmul(ops.sin(saved(x)), ops.sin(other(ops.exp(x)))))

    def by_list(checkpoint, x):
        return checkpoint.using(save=["matmul"])(region, x)

    def by_function(checkpoint, x):
        return checkpoint.using(policy=lambda operation: operation == "matmul")(region, x)

    listed = under_test.run(by_list, under_test.array(shape=(3, 3)), memory=True)
    decided = under_test.run(by_function, under_test.array(shape=(3, 3)), memory=True)

    assert listed.backward == decided.backward, "a list and a function replay differently"


@clause(
    "SEL-05",
    MUST,
    tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN),
    needs=(*TORCH, Fact.HELD_BYTES),
    profile=Profile.TORCH,
    answer=(True, False),
)
def test_a_policy_may_answer_yes_or_no(under_test, answer):
    """A policy function's True means that a result is saved, its False that it is not.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api
    size = 8 * 1000

    def region(x):
        for _ in range(4):
            x = ops.exp(ops.sin(probe(x)))
        return ops.sum(x)

    def program(checkpoint, x):
        contexts = lambda: api.create_selective_checkpoint_contexts(lambda *args, **kwargs: answer)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    seen = under_test.run(program, under_test.array(shape=(1000,)), replays=0, memory=True)
    under_test.run(without, under_test.array(shape=(1000,)))

    if answer:
        assert seen.held.after_forward >= 8 * size, "what the policy saved is not held"
    else:
        assert seen.held.after_forward <= 4 * size, "what the policy did not save is held"


@clause(
    "SEL-06",
    SHOULD,
    tests=(Capability.POLICY_BY_OP, Capability.CONTEXT_FN),
    needs=TORCH,
    profile=Profile.TORCH,
    policy=("a list with text", "a list with a number", "text", "a number"),
)
def test_what_is_no_policy_is_refused(under_test, policy):
    """A policy that is neither a function nor a list of operations is refused with a TypeError or ValueError.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api
    bad = {"a list with text": ["sin"], "a list with a number": [3], "text": "sin", "a number": 3}[policy]

    def program(checkpoint, x):
        contexts = lambda: api.create_selective_checkpoint_contexts(bad)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(lambda x: ops.sin(ops.exp(probe(x))), x)

    def good(checkpoint, x):
        return checkpoint(lambda x: ops.sin(ops.exp(probe(x))), x)

    seen = under_test.attempt(program, under_test.array(), replays=0)
    under_test.run(good, under_test.array())

    assert isinstance(seen.error, TypeError | ValueError), "what is no policy was accepted"


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


@clause(
    "SEL-08",
    MUST,
    tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN),
    needs=TORCH,
    profile=Profile.TORCH,
    result=("several arrays", "a number"),
)
def test_results_of_every_kind_can_be_saved(under_test, result):
    """An operation with several results, or with a number as its result, can be saved.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, torch, probe, api = under_test.ops, under_test.torch, under_test.probe(), under_test.api
    saved = {"several arrays": "topk", "a number": "item"}[result]

    def policy(context, operation, *args, **kwargs):
        return saved in str(operation) or "_local_scalar_dense" in str(operation)

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.sin(probe(x)))
            if result == "a number":
                return ops.sin(ops.multiply(y, ops.sum(y).item()))
            largest, places = torch.topk(y, 2)
            return ops.sin(ops.multiply(largest, places))

        contexts = lambda: api.create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(region, x)

    under_test.run(program, under_test.array())


@clause("SEL-09", MUST, tests=Capability.POLICY_FUNCTION, dtype=("int64", "int32", "bool"))
def test_a_policy_may_save_views_and_integers(under_test, dtype):
    """A policy may save every operation, also views and operations on arrays that cannot be differentiated.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        y = ops.exp(probe(x))
        count = ops.reshape(ops.astype(ops.reshape(y, (2, 2)), dtype), (4,))
        return ops.sin(ops.multiply(y, count))

    def program(checkpoint, x):
        return checkpoint.using(policy=lambda operation: True)(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.run(program, under_test.array(), replays=0)
    under_test.run(without, under_test.array())


@clause("SEL-10", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.IN_PLACE,))
def test_a_saved_result_that_is_changed_is_no_wrong_gradient(under_test):
    """Where the region changes a saved result in place afterwards, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`, `allow_cache_entry_mutation`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        y = ops.sin(probe(x))
        ops.add_(y, 1.0)
        return ops.sin(ops.exp(y))

    def program(checkpoint, x):
        return checkpoint.using(save=["sin"])(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause(
    "SEL-11",
    MUST,
    tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN),
    needs=(*TORCH, Fact.IN_PLACE),
    profile=Profile.TORCH,
    view=("view", "select", "slice"),
)
def test_a_saved_view_that_is_changed_is_no_wrong_gradient(under_test, view):
    """Where a policy saves a view through which the region then changes a value, the gradient is right or there is an
    error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api

    def region(x):
        y = ops.sin(probe(x))
        part = {"view": lambda: y.view(2, 2), "select": lambda: y.select(0, 1), "slice": lambda: y[1:3]}[view]()
        ops.add_(part, 1.0)
        return ops.sin(ops.exp(y))

    def program(checkpoint, x):
        policy = lambda context, operation, *args, **kwargs: view in str(operation)  # noqa: E731
        contexts = lambda: api.create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause(
    "SEL-12",
    MUST,
    tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN),
    needs=(*TORCH, Fact.IN_PLACE),
    profile=Profile.TORCH,
)
def test_saving_an_operation_in_place_is_no_wrong_gradient(under_test):
    """Where a policy saves an operation that changes its operand in place, the gradient is right or there is an error.

    Source: pytorch/pytorch#119590.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api

    def region(x):
        y = ops.sin(probe(x))
        ops.add_(y, 1.0)
        return ops.sin(ops.exp(y))

    def program(checkpoint, x):
        policy = lambda context, operation, *args, **kwargs: "add_" in str(operation)  # noqa: E731
        contexts = lambda: api.create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause("SEL-13", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.IN_PLACE,))
def test_a_caller_may_change_a_result_that_was_saved(under_test):
    """Where the caller changes in place a region's result that its policy saved, the gradient is right or there is an
    error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        y = ops.sin(ops.cos(probe(x)))
        return y, ops.sin(ops.exp(y))

    def program(checkpoint, x):
        y, z = checkpoint.using(save=["sin"])(region, x)
        ops.add_(y, 1.0)
        return ops.exp(y), z

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


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


@clause("SEL-15", MUST, tests=(Capability.POLICY_BY_OP, Capability.CONTEXT_FN), needs=TORCH, profile=Profile.TORCH)
def test_contexts_used_for_two_regions_are_no_wrong_gradient(under_test):
    """Where two regions are given the same pair of contexts, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api

    def region(x):
        return ops.sin(ops.exp(ops.sin(probe(x))))

    def program(checkpoint, x):
        pair = api.create_selective_checkpoint_contexts(lambda context, operation, *a, **k: "exp" in str(operation))
        checkpoint = checkpoint.using(context_fn=lambda: pair)
        return checkpoint(region, checkpoint(region, x))

    def without(checkpoint, x):
        return checkpoint(region, x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause(
    "SEL-16",
    MUST,
    tests=(Capability.POLICY_FUNCTION, Capability.OFFLOAD),
    answer=("MUST_CPU_OFFLOAD", "PREFER_CPU_OFFLOAD"),
)
def test_an_offloaded_result_is_not_executed_again(under_test, answer):
    """An operation whose result the policy keeps in the host's memory is not executed in the replay.

    Source: torch.utils.checkpoint, `CheckpointPolicy`; pytorch/pytorch#196956.
    """
    ops, offloaded, other = under_test.ops, under_test.probe("offloaded"), under_test.probe("other")

    def program(checkpoint, x):
        asked = []

        def policy(operation):
            if operation != "probe":
                return False
            asked.append(operation)
            return answer if len(asked) == 1 else False

        return checkpoint.using(policy=policy)(lambda x: ops.exp(other(ops.sin(offloaded(ops.exp(x))))), x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[offloaded] == 0, "an offloaded operation was executed again"


@clause(
    "SEL-17",
    SHOULD,
    tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN),
    needs=TORCH,
    profile=Profile.TORCH,
    answer=(None, "save", 7),
)
def test_an_answer_that_is_none_of_the_policies_is_refused(under_test, answer):
    """A policy function's answer that means nothing is an error, not silently one of the policies.

    Source: torch.utils.checkpoint, `CheckpointPolicy`; AI-Hypercomputer/maxtext#3924.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api

    def program(checkpoint, x):
        contexts = lambda: api.create_selective_checkpoint_contexts(lambda *args, **kwargs: answer)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(lambda x: ops.sin(ops.exp(probe(x))), x)

    def without(checkpoint, x):
        return checkpoint(lambda x: ops.sin(ops.exp(probe(x))), x)

    seen = under_test.attempt(program, under_test.array(), replays=0)
    under_test.run(without, under_test.array())

    assert seen.error is not None, "an answer that means nothing was accepted"


@clause("SEL-18", MUST, tests=Capability.POLICY_FUNCTION)
def test_a_policy_that_raises_leaves_nothing_behind(under_test):
    """An exception of a policy function reaches the caller as it is, and the policy has no part in what follows.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, raised, asked = under_test.ops, under_test.probe(), [], []

    class Refused(Exception):
        pass

    def program(checkpoint, x):
        def policy(operation):
            asked.append(operation)
            raise Refused

        try:
            checkpoint.using(policy=policy)(lambda x: ops.sin(ops.exp(x)), x)
        except Refused as error:
            raised.append(error)
        asked.clear()
        return under_test.noted(lambda: checkpoint(lambda x: ops.sin(ops.exp(probe(x))), ops.exp(x)))

    under_test.run(program, under_test.array())

    assert raised, "the policy's exception was lost"
    assert not asked, "the policy was asked after the region had failed"


@clause("SEL-19", MUST, tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN), needs=TORCH, profile=Profile.TORCH)
def test_bookkeeping_is_no_operation_to_a_policy(under_test):
    """Detaching an array and reading its metadata are not shown to a policy, and may differ between forward and replay.

    Source: torch.utils.checkpoint, `SAC_IGNORED_OPS`; NVIDIA-NeMo/Automodel#3133.
    """
    ops, probe, api, asked = under_test.ops, under_test.probe(), under_test.api, []

    def policy(context, operation, *args, **kwargs):
        asked.append(str(operation))
        return "exp" in asked[-1]

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.sin(probe(x)))
            times = 3 if under_test.phase == "backward" else 1
            for _ in range(times):
                assert (y.detach().shape, y.dim(), y.stride(), y.numel()) is not None
            return ops.sin(y)

        contexts = lambda: api.create_selective_checkpoint_contexts(policy)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(region, x)

    under_test.run(program, under_test.array())

    assert asked, "the policy was never asked"
    assert not any("detach" in name for name in asked), "a policy was asked about bookkeeping"


@clause(
    "SEL-20",
    MUST,
    tests=Capability.POLICY_BY_OP,
    needs=(Fact.EAGER,),
    surplus=("one execution more", "another operation"),
)
def test_a_replay_with_other_operations_is_no_wrong_gradient(under_test, surplus):
    """Where a replay executes a saved operation once more than forward, or one that forward did not, before it uses
    the saved results, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; NVIDIA-NeMo/Automodel#3247.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        y = ops.sin(probe(x))
        if under_test.phase == "backward":
            (ops.exp if surplus == "one execution more" else ops.tanh)(x)
        return ops.sin(ops.exp(ops.cos(ops.exp(y))))

    def program(checkpoint, x):
        return checkpoint.using(save=["exp", "tanh"])(region, x)

    def without(checkpoint, x):
        return checkpoint(lambda x: ops.sin(ops.exp(probe(x))), x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


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


@clause(
    "SEL-22",
    MUST,
    tests=Capability.POLICY_BY_OP,
    inner=("selective in plain", "plain in selective", "selective in selective"),
)
def test_selective_regions_nest(under_test, inner):
    """Regions with policies and without nest in every combination.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#153334.
    """
    ops, first, second = under_test.ops, under_test.probe("outer"), under_test.probe("inner")

    def program(checkpoint, x, w):
        selective = checkpoint.using(save=["exp", "matmul"])

        def inside(y):
            return ops.sin(ops.exp(ops.matmul(ops.sin(second(y)), w)))

        def region(x):
            y = ops.exp(ops.matmul(ops.sin(first(x)), w))
            return ops.sin(ops.exp((selective if inner.startswith("selective") else checkpoint)(inside, ops.cos(y))))

        return (selective if inner.endswith("selective") else checkpoint)(region, x)

    under_test.run(program, under_test.array(shape=(3, 3)), under_test.array(shape=(3, 3)))


@clause("SEL-24", MUST, tests=Capability.POLICY_BY_OP, needs=(Fact.HELD_BYTES,), end=("backward", "dropped"))
def test_saved_results_go_with_the_graph(under_test, end):
    """What a policy saved is released by a backward that keeps nothing, and when the outputs are dropped without one.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, held = under_test.ops, under_test.probe(), []
    size = 8 * 1000

    def region(x):
        for _ in range(4):
            x = ops.exp(ops.sin(probe(x)))
        return ops.sum(x)

    def program(checkpoint, x):
        selective = checkpoint.using(save=["exp"])
        if end == "backward":
            return selective(region, x)
        before = under_test.held()
        y = selective(region, x)
        during = under_test.held()
        del y
        held.append((before, during, under_test.held()))
        return checkpoint(region, x)

    seen = under_test.run(program, under_test.array(shape=(1000,)), memory=True)

    if end == "backward":
        assert seen.held.after_forward >= 4 * size, "nothing was saved"
        assert seen.held.after_backward <= seen.plain.held.after_backward, "saved results are held after backward"
    else:
        (before, _, plain), (_, during, after) = held[0], held[-1]
        assert during >= before + 3 * size, "nothing was saved"
        assert after <= plain + size // 2, "saved results are held after the outputs are gone"


@clause("SEL-25", MUST, tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN), needs=TORCH, profile=Profile.TORCH)
def test_a_policy_is_not_asked_without_gradients(under_test):
    """Where gradients are switched off, a region's policy is not asked.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, torch, probe, asked = under_test.ops, under_test.torch, under_test.probe(), []

    def policy(operation):
        asked.append(operation)
        return operation == "exp"

    def region(x):
        return ops.sin(ops.exp(ops.sin(probe(x))))

    def program(checkpoint, x):
        with torch.no_grad():
            checkpoint.using(policy=policy)(region, x)
        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert not asked, "the policy was asked although gradients are off"


@clause("SEL-26", MUST)
def test_a_policy_is_followed_or_refused(under_test):
    """A checkpointer that cannot follow a policy refuses it; it does not leave the policy out.

    Source: torch.utils.checkpoint, `context_fn`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.exp(ops.sin(probe(ops.exp(x))))

    def program(checkpoint, x):
        return checkpoint.using(save=["probe"])(region, x)

    def without(checkpoint, x):
        return checkpoint(region, x)

    seen = under_test.attempt(program, under_test.array(), replays=0)
    under_test.run(without, under_test.array())

    assert seen.error is not None or seen.backward[probe] == 0, "a policy was left out"


@clause(
    "SEL-27",
    MUST,
    tests=(Capability.POLICY_BY_OP, Capability.UNPRESERVED_RANDOM),
    needs=(Fact.GLOBAL_RANDOM,),
)
def test_a_saved_draw_needs_no_generator(under_test):
    """With `preserve_rng_state=False`, a random operation whose result is saved has the right gradient.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            return ops.exp(ops.multiply(ops.sin(probe(x)), ops.uniform_like(x)))

        return checkpoint.using(preserve_rng_state=False, save=["uniform_like"])(region, x)

    under_test.run(program, under_test.array(shape=(64,)))


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


@clause(
    "SEL-29",
    MAY,
    tests=(Capability.POLICY_FUNCTION, Capability.CONTEXT_FN),
    needs=(*TORCH, Fact.IN_PLACE),
    profile=Profile.TORCH,
)
def test_saved_results_may_be_allowed_to_change(under_test):
    """With `allow_cache_entry_mutation=True`, a saved result that the region changes in place is no error.

    Not promised: the gradient.
    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe, api = under_test.ops, under_test.probe(), under_test.api

    def region(x):
        y = ops.sin(probe(x))
        ops.add_(y, 1.0)
        return ops.sin(ops.exp(y))

    def program(checkpoint, x):
        policy = lambda context, operation, *args, **kwargs: "sin" in str(operation)  # noqa: E731
        contexts = lambda: api.create_selective_checkpoint_contexts(policy, allow_cache_entry_mutation=True)  # noqa: E731
        return checkpoint.using(context_fn=contexts)(region, x)

    def backward(pull):
        pull()

    under_test.run(program, under_test.array(), backward=backward)
