"""SEQ: a sequence in segments.

A sequence of functions is run as a number of regions of equal length, the remainder added to the last one. That last
one is not checkpointed: backward needs its values at once.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, Profile, clause

SEQUENTIAL = Capability.SEQUENTIAL
TORCH = (Fact.TORCH_NAMES,)


@clause("SEQ-01", MUST, tests=SEQUENTIAL, container=("list", "tuple"))
def test_a_sequence_is_its_functions_in_order(under_test, container):
    """Values and gradients of a sequence in segments are those of its functions, called one after the other.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        functions = [probe, ops.sin, ops.exp, ops.tanh, ops.cos, ops.exp]
        return checkpoint.sequential(tuple(functions) if container == "tuple" else functions, 2, x)

    under_test.run(program, under_test.array())


@clause("SEQ-02", MUST, tests=SEQUENTIAL)
def test_the_last_segment_takes_the_rest_and_is_not_checkpointed(under_test):
    """Ten functions in three segments are two regions of three functions, and four functions that are not replayed.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probes = under_test.ops, [under_test.probe(f"function {i}") for i in range(10)]

    def program(checkpoint, x):
        functions = [lambda x, probe=probe: ops.sin(ops.exp(probe(x))) for probe in probes]
        return checkpoint.sequential(functions, 3, x)

    seen = under_test.run(program, under_test.array())

    assert [seen.backward[p] for p in probes[:6]] == [1] * 6, "a function of the first segments was not replayed once"
    assert [seen.backward[p] for p in probes[6:]] == [0] * 4, "a function of the last segment was replayed"


@clause("SEQ-03", MUST, tests=SEQUENTIAL)
def test_one_segment_is_a_plain_call(under_test):
    """A sequence in one segment is run without checkpointing.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(segments):
        return lambda checkpoint, x: checkpoint.sequential(
            [lambda x: ops.sin(probe(x)), ops.exp, ops.tanh], segments, x
        )

    seen = under_test.run(program(1), under_test.array(), replays=0)
    under_test.run(program(3), under_test.array())

    assert seen.backward[probe] == 0, "the only segment was replayed"


@clause("SEQ-04", SHOULD, tests=SEQUENTIAL, segments=(4, 0, -1))
def test_an_impossible_number_of_segments_is_a_value_error(under_test, segments):
    """More segments than functions, none, or a negative number of them is refused with a ValueError.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(segments):
        return lambda checkpoint, x: checkpoint.sequential(
            [lambda x: ops.sin(probe(x)), ops.exp, ops.tanh], segments, x
        )

    seen = under_test.attempt(program(segments), under_test.array(), replays=0)
    under_test.run(program(3), under_test.array())

    assert isinstance(seen.error, ValueError), "an impossible number of segments is no ValueError"


@clause("SEQ-05", MUST, tests=SEQUENTIAL, inputs=(0, 2))
def test_a_sequence_has_one_input(under_test, inputs):
    """A sequence is given one input; none, or one more, is an error.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe, refused = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        functions = [lambda x: ops.sin(probe(x)), ops.exp]
        try:
            checkpoint.sequential(functions, 2, *[x] * inputs)
        except Exception as error:
            refused.append(error)
        return checkpoint.sequential(functions, 2, x)

    under_test.run(program, under_test.array())

    assert len(refused) == 3, "another number of inputs than one was accepted"


@clause("SEQ-06", MUST, tests=(SEQUENTIAL, Capability.EARLY_STOP))
def test_an_option_of_a_sequence_is_kept_or_refused(under_test):
    """An option such as `early_stop` either holds for the regions of a sequence or is refused; it is not ignored.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, head, tail = under_test.ops, under_test.probe("head"), under_test.probe("tail")

    def program(**options):
        def program(checkpoint, x):
            functions = [lambda x: tail(ops.add(ops.sin(ops.exp(head(x))), 1.0)), ops.exp]
            return checkpoint.using(**options).sequential(functions, 2, x)

        return program

    seen = under_test.attempt(program(early_stop=False), under_test.array())
    under_test.run(program(), under_test.array())

    assert seen.error is not None or seen.backward[tail] == 1, "an option was ignored"


@clause("SEQ-07", SHOULD, tests=SEQUENTIAL, needs=TORCH, profile=Profile.TORCH)
def test_a_sequence_without_a_chosen_form_warns(under_test):
    """A sequence that is not told `use_reentrant` warns that the form should be chosen, once.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe, caught = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        caught.clear()
        functions = [lambda x: ops.sin(probe(x)), ops.exp, ops.tanh]
        with under_test.warnings() as warned:
            under_test.api.checkpoint_sequential(functions, 3, x)
        caught.extend(warned)
        return checkpoint.sequential(functions, 3, x)

    under_test.run(program, under_test.array())

    assert sum("use_reentrant" in warning.text for warning in caught) == 1, "not one warning that names `use_reentrant`"


@clause("SEQ-08", SHOULD, tests=SEQUENTIAL)
def test_an_empty_sequence_returns_its_input(under_test):
    """A sequence of no functions returns its input.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        x = checkpoint.sequential([], 1, x)
        return checkpoint.sequential([lambda x: ops.sin(probe(x)), ops.exp], 2, x)

    under_test.run(program, under_test.array())


@clause("SEQ-09", MUST, tests=SEQUENTIAL, needs=TORCH, profile=Profile.TORCH)
def test_a_module_container_is_a_sequence(under_test):
    """A module that contains modules in order is run in segments like a list of them.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        nn = under_test.torch.nn

        class Layer(nn.Module):
            def forward(self, x):
                return ops.sin(ops.exp(probe(x)))

        return checkpoint.sequential(nn.Sequential(Layer(), nn.Tanh(), Layer(), nn.Tanh()), 2, x)

    under_test.run(program, under_test.array())


@clause(
    "SEQ-10",
    MUST,
    tests=(SEQUENTIAL, Capability.UNPRESERVED_RANDOM),
    needs=(Fact.GLOBAL_RANDOM,),
    preserve=(True, False),
)
def test_a_sequence_knows_preserve_rng_state(under_test, preserve):
    """A sequence accepts `preserve_rng_state`: with it replays draw what forward drew, without it forward is unchanged.

    Source: torch.utils.checkpoint, `checkpoint_sequential`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        functions = [lambda x: ops.dropout(ops.sin(probe(x)), 0.5), ops.exp, ops.tanh]
        return checkpoint.using(preserve_rng_state=preserve).sequential(functions, 3, x)

    def backward(pull):
        gradients = pull()
        return gradients if preserve else None

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)
