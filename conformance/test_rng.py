"""RNG: randomness.

A replay draws the numbers that forward drew. To everyone else the generator behaves as if there were no replay.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, Profile, clause

GLOBAL = (Fact.GLOBAL_RANDOM,)


@clause("RNG-01", MUST, needs=GLOBAL, profile=Profile.CORE)
def test_a_replay_draws_what_forward_drew(under_test):
    """Random operations in a replay give what they gave in forward.

    Source: torch.utils.checkpoint, `preserve_rng_state`; pytorch/pytorch#14253.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))
            return ops.exp(ops.dropout(y, 0.5))

        return checkpoint(region, x)

    under_test.run(program, under_test.array(shape=(64,)))


@clause("RNG-02", MUST, needs=GLOBAL)
def test_backward_leaves_the_generator_as_it_was(under_test):
    """After backward the generator is where it was before backward.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, like = under_test.ops, under_test.probe(), under_test.array()

    def program(checkpoint, x):
        y = checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)
        ops.uniform_like(like)  # moves on, so that where the replay ends is another place
        return y

    def backward(pull):
        return pull(), ops.uniform_like(like)

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause("RNG-03", MUST, tests=Capability.UNPRESERVED_RANDOM, needs=GLOBAL)
def test_without_preservation_forward_is_unchanged(under_test):
    """With `preserve_rng_state=False` a region runs, and its values are those of the plain call.

    Not promised: its gradients; the replay may draw other numbers.
    Source: torch.utils.checkpoint, `preserve_rng_state`; allenai/OLMo-core#828.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        region = lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))  # noqa: E731
        return checkpoint.using(preserve_rng_state=False)(region, x)

    def backward(pull):
        pull()

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause("RNG-04", MUST, needs=GLOBAL)
def test_forward_advances_the_generator_as_the_plain_call(under_test):
    """Random operations after a region draw what they would draw after the plain call.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        y = checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)
        return ops.multiply(y, ops.uniform_like(x))

    under_test.run(program, under_test.array(shape=(64,)))


@clause("RNG-05", MUST, needs=(Fact.GLOBAL_RANDOM, Fact.EAGER))
def test_a_failed_replay_leaves_the_generator_as_it_was(under_test):
    """The generator is where it was before backward also when the replay raises.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, like, raised = under_test.ops, under_test.probe(), under_test.array(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.dropout(ops.sin(probe(x)), 0.5)
            if under_test.phase == "backward":
                raise ValueError("the replay fails")
            return ops.exp(y)

        y = checkpoint(region, x)
        ops.uniform_like(like)  # moves on, so that where the replay ends is another place
        return y

    def backward(pull):
        try:
            pull()
        except Exception:
            raised.append(True)
        return ops.uniform_like(like)

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)

    assert raised, "the exception of the replay was lost"


@clause("RNG-06", MUST, needs=GLOBAL)
def test_a_replay_that_ends_early_leaves_the_generator_as_it_was(under_test):
    """The generator is where it was before backward also when the replay ends before the region's later draws.

    Source: torch.utils.checkpoint, `early_stop`.
    """
    ops, probe, like = under_test.ops, under_test.probe(), under_test.array()

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))
            return ops.add(y, ops.uniform_like(like))

        return checkpoint(region, x)

    def backward(pull):
        return pull(), ops.uniform_like(like)

    under_test.run(program, under_test.array(), backward=backward)


@clause("RNG-07", MUST, needs=GLOBAL)
def test_nested_regions_draw_what_they_drew(under_test):
    """Random operations at every level of nested regions give in replays what they gave in forward.

    Source: torch.utils.checkpoint.
    """
    ops, probe, like = under_test.ops, under_test.probe(), under_test.array()

    def program(checkpoint, x):
        def inner(x):
            return ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))

        def outer(x):
            y = checkpoint(inner, ops.dropout(ops.cos(x), 0.5))
            return ops.exp(ops.dropout(ops.sin(y), 0.5))

        return checkpoint(outer, x)

    def backward(pull):
        return pull(), ops.uniform_like(like)

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause("RNG-08", MUST, needs=(Fact.GLOBAL_RANDOM, Fact.EAGER))
def test_a_seed_set_in_a_region_does_not_outlive_the_replay(under_test):
    """After backward the generator is where it was before backward also when the region itself seeds it.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, like = under_test.ops, under_test.probe(), under_test.array()

    def program(checkpoint, x):
        def region(x):
            under_test.seed(7)
            return ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))

        y = checkpoint(region, x)
        ops.uniform_like(like)
        return y

    def backward(pull):
        return pull(), ops.uniform_like(like)

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause("RNG-09", MUST, tests=Capability.UNPRESERVED_RANDOM)
def test_a_region_without_randomness_does_not_need_preservation(under_test):
    """With `preserve_rng_state=False`, a region that draws nothing gives the plain values and gradients.

    Source: pytorch/pytorch#76737.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        return checkpoint.using(preserve_rng_state=False)(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())


@clause("RNG-10", MAY, needs=(Fact.TORCH_NAMES, Fact.EAGER), profile=Profile.TORCH)
def test_a_generator_object_is_not_restored(under_test):
    """What a region draws from a generator object of its own is drawn afresh in a replay.

    Not promised: anything about generators other than the global ones, such as Python's and NumPy's.
    Source: torch.utils.checkpoint, `preserve_rng_state`; PaddlePaddle/PaddleFormers#3936.
    """
    ops, torch, probe, drawn = under_test.ops, under_test.torch, under_test.probe(), []

    def program(checkpoint, x):
        generator = torch.Generator()
        generator.manual_seed(5)

        def region(x):
            drawn.append(torch.rand(4, generator=generator).tolist())
            return ops.exp(ops.sin(probe(x)))

        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert drawn[-1] != drawn[-2], "the replay drew the same from a generator object"


@clause("RNG-11", MUST, needs=GLOBAL)
def test_draws_between_forward_and_backward_do_not_matter(under_test):
    """A replay draws what forward drew, however many numbers were drawn in between: its state is a copy.

    Source: torch.utils.checkpoint, `preserve_rng_state`; NVIDIA/Megatron-LM#5841.
    """
    ops, probe, like = under_test.ops, under_test.probe(), under_test.array(shape=(7,))

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)

    def backward(pull):
        drawn = [ops.uniform_like(like) for _ in range(3)]
        return drawn, pull(), ops.uniform_like(like)

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause("RNG-12", MUST, needs=GLOBAL)
def test_each_region_keeps_a_state_of_its_own(under_test):
    """Where several regions draw random numbers, the replay of each draws what that region drew in forward.

    Source: NVIDIA/Megatron-LM#5841.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        for _ in range(3):
            x = checkpoint(lambda x: ops.exp(ops.negative(ops.dropout(ops.sin(probe(x)), 0.5))), x)
        return x

    under_test.run(program, under_test.array(shape=(64,)), replays=3)


@clause("RNG-13", MAY, needs=(Fact.GLOBAL_RANDOM, Fact.EAGER, Fact.THREADS))
def test_other_threads_see_the_generator_that_a_replay_rewound(under_test):
    """What another thread draws from a shared generator while a replay runs does not advance it for later draws.

    Not promised: that such a thread draws numbers which the replay does not draw too.
    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, like, later = under_test.ops, under_test.probe(), under_test.array(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.dropout(ops.sin(probe(x)), 0.5)
            if under_test.phase == "backward":
                under_test.in_threads(lambda: ops.uniform_like(like))
            return ops.exp(y)

        return checkpoint(region, x)

    def backward(pull):
        gradients = pull()
        later.append(under_test.numpy(ops.uniform_like(like)).tolist())
        return gradients

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)

    assert later[-1] == later[0], "another thread's draw advanced the generator"


@clause("RNG-14", MUST, tests=Capability.POLICY_BY_OP, needs=GLOBAL)
def test_a_saved_draw_does_not_shift_the_later_ones(under_test):
    """Where a policy saves a random operation's result, the replay's later random operations still draw what they drew.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            noise = ops.uniform_like(x)
            return ops.exp(ops.dropout(ops.sin(ops.multiply(probe(x), noise)), 0.5))

        return checkpoint.using(save=["uniform_like"])(region, x)

    under_test.run(program, under_test.array(shape=(64,)))


@clause("RNG-20", MUST, needs=(Fact.KEYED_RANDOM,), profile=Profile.FUNCTIONAL)
def test_a_replay_with_the_same_key_draws_the_same(under_test):
    """Random operations that take a key give in a replay what they gave in forward.

    Source: jax.checkpoint; tf.recompute_grad.
    """
    ops, probe, key = under_test.ops, under_test.probe(), under_test.key(3)

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5, key=key)), x)

    under_test.run(program, under_test.array(shape=(64,)))
