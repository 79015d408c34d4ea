"""COMPILE: regions and compilers.

A compiler takes a program apart and puts it together again. A region comes out as it went in: the same values, the same
random numbers, executed once in forward and once more for backward, and not kept because the compiler found that it had
been computed before. A probe's counts show this; they are of real executions, not of traces.

The plain run here is neither checkpointed nor compiled. So that both come to the same bits, programs multiply and add
numbers for which this is exact in binary arithmetic.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

COMPILER = (Fact.COMPILER,)


@clause(
    "COMPILE-01",
    MUST,
    needs=COMPILER,
    profile=Profile.COMPILE,
    result=("array", "tuple"),
    dtype=("float64", "float32"),
)
def test_a_compiled_program_with_a_region_is_that_program(under_test, result, dtype):
    """A compiled program that contains a region has the values and gradients of the program.

    Source: torch.compile; jax.checkpoint under jax.jit.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def step(x, w):
            def region(x):
                y = ops.multiply(ops.multiply(probe(x), w), ops.add(x, 1.0))
                return y if result == "array" else (y, ops.multiply(y, w))

            y = checkpoint(region, ops.multiply(x, 2.0))
            return ops.multiply(y, x) if result == "array" else ops.multiply(*y)

        return under_test.compiled(step)(x, w)

    x, w = under_test.array(1.0, -2.0, 3.0, 0.5, dtype=dtype), under_test.array(0.5, -1.0, 2.0, 0.25, dtype=dtype)
    under_test.run(program, x, w)


@clause("COMPILE-02", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_compiled_region_is_replayed_exactly_once(under_test):
    """In a compiled program a region is executed once in forward and once more in backward.

    Source: torch.compile; pytorch/pytorch#142862; jax-ml/jax#13999.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def step(x):
            y = checkpoint(lambda x: ops.multiply(ops.multiply(probe(x), x), x), ops.multiply(x, 2.0))
            return ops.multiply(y, y)

        return under_test.compiled(step)(x)

    seen = under_test.run(program, under_test.array(1.0, -2.0, 3.0, 0.5))

    assert seen.forward[probe] == 1, "forward executed the region more than once"
    assert seen.backward[probe] == 1, "backward executed the region more than once"


@clause("COMPILE-03", MUST, needs=(*COMPILER, Fact.GLOBAL_RANDOM), profile=Profile.COMPILE)
def test_a_compiled_region_draws_again_what_it_drew(under_test):
    """Random operations of a region in a compiled program give in backward what they gave in forward.

    Not promised: other numbers in backward where preservation is turned off.
    Source: deepspeedai/DeepSpeed#6811; pytorch/pytorch#113717.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def step(x):
            y = checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)
            return ops.multiply(y, ops.uniform_like(x))

        return under_test.compiled(step)(x)

    under_test.run(program, under_test.array(shape=(64,)))


@clause(
    "COMPILE-05",
    MUST,
    tests=Capability.CONTEXT_FN,
    needs=(*COMPILER, Fact.TORCH_NAMES),
    profile=Profile.COMPILE,
)
def test_contexts_of_a_compiled_region_take_effect_or_are_refused(under_test):
    """The contexts of a region in a compiled program take effect in forward and in the replay, or the call is refused.

    Source: torch.utils.checkpoint, `context_fn`; pytorch/pytorch#113737.
    """
    ops, probe, factor = under_test.ops, under_test.probe(), [1.0]

    class Scaled:
        def __enter__(self):
            factor[0] = 2.0

        def __exit__(self, *exception):
            factor[0] = 1.0

    def region(x):
        return ops.multiply(ops.multiply(probe(x), factor[0]), x)

    def program(checkpoint, x):
        checkpoint = checkpoint.using(context_fn=lambda: (Scaled(), Scaled()))
        return under_test.compiled(lambda x: checkpoint(region, x))(x)

    def plain(checkpoint, x):
        with Scaled():
            return region(x)

    def without(checkpoint, x):
        return under_test.compiled(lambda x: checkpoint(region, x))(x)

    x = under_test.array(1.0, -2.0, 3.0, 0.5)
    under_test.attempt(program, x, plain=plain)
    under_test.run(without, x)


@clause("COMPILE-06", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_region_may_call_a_compiled_function(under_test):
    """A region that calls a compiled function gives the values and gradients of the plain one, and is replayed once.

    Source: pytorch/pytorch#166926; jax-ml/jax#9661.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        compiled = under_test.compiled(lambda x: ops.multiply(ops.multiply(probe(x), x), 3.0))
        return checkpoint(lambda x: ops.multiply(compiled(ops.multiply(x, 2.0)), x), x)

    seen = under_test.run(program, under_test.array(1.0, -2.0, 3.0, 0.5))

    assert seen.backward[probe] == 1, "the compiled function was not executed once for backward"


@clause("COMPILE-08", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_change_made_by_a_compiled_region_is_made_once_in_forward(under_test):
    """What a region in a compiled program writes to is changed in forward as by the plain call, or it is refused.

    Not promised: what a replay does to it.
    Source: torch.compile, higher-order operators.
    """
    ops, probe, written = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        written.clear()

        def region(x):
            written.append(1)
            return ops.multiply(ops.multiply(probe(x), x), x)

        y = under_test.compiled(lambda x: checkpoint(region, x))(x)
        return y, len(written)

    def without(checkpoint, x):
        return under_test.compiled(lambda x: checkpoint(lambda x: ops.multiply(probe(x), x), x))(x)

    x = under_test.array(1.0, -2.0, 3.0, 0.5)
    under_test.attempt(program, x)
    under_test.run(without, x)


@clause("COMPILE-11", MAY, tests=Capability.DECORATOR, needs=COMPILER, profile=Profile.COMPILE)
def test_the_decorator_form_can_be_compiled(under_test):
    """A compiled program may call a decorated function.

    Source: pytorch/pytorch#189412.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        region = checkpoint.decorator()(lambda x: ops.multiply(ops.multiply(probe(x), x), x))
        return under_test.compiled(lambda x: ops.multiply(region(x), x))(x)

    under_test.run(program, under_test.array(1.0, -2.0, 3.0, 0.5))


@clause("COMPILE-12", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_regions_in_a_compiled_program_may_be_nested(under_test):
    """A compiled program whose regions contain regions has the values and gradients of the program.

    Not promised: that each region is replayed on its own.
    Source: torch.compile; pytorch/pytorch#174993.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def inner(x):
            return ops.multiply(ops.multiply(probe(x), x), x)

        def outer(x):
            return ops.multiply(checkpoint(inner, ops.multiply(checkpoint(inner, x), 0.5)), x)

        return under_test.compiled(lambda x: checkpoint(outer, ops.multiply(x, 2.0)))(x)

    under_test.run(program, under_test.array(1.0, -2.0, 3.0, 0.5))


@clause("COMPILE-13", MUST, tests=Capability.POLICY_BY_OP, needs=COMPILER, profile=Profile.COMPILE)
def test_a_policy_holds_in_a_compiled_program(under_test):
    """In a compiled program, too, an operation that a policy saves is not executed again, and others are.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#142862.
    """
    ops, saved, other = under_test.ops, under_test.probe("saved"), under_test.probe("other")

    def program(checkpoint, x):
        selective = checkpoint.using(save=["probe"])

        def step(x):
            y = selective(lambda x: ops.multiply(saved(ops.multiply(x, x)), x), x)
            return checkpoint(lambda y: ops.multiply(ops.multiply(other(y), y), y), y)

        return under_test.compiled(step)(x)

    seen = under_test.run(program, under_test.array(1.0, -2.0, 3.0, 0.5))

    assert seen.backward[saved] == 0, "a saved operation was executed again"
    assert seen.backward[other] == 1, "the other region was not replayed, or more than once"


@clause("COMPILE-14", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_compiled_program_follows_the_shapes_that_it_is_given(under_test):
    """A compiled program that is called with arrays of several shapes is right each time.

    Source: pytorch/pytorch#166926; pytorch/pytorch#144035.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, y, z):
        step = under_test.compiled(lambda x: checkpoint(lambda x: ops.multiply(ops.multiply(probe(x), x), x), x))
        return step(x), step(y), step(z)

    seen = under_test.run(
        program,
        under_test.array(1.0, -2.0, 3.0),
        under_test.array(0.5, 1.0, -2.0, 3.0),
        under_test.array(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, shape=(3, 2)),
        replays=3,
    )

    assert seen.backward[probe] == 3, "a region was not replayed, or more than once"


@clause("COMPILE-15", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_region_that_calls_compiled_code_of_several_shapes_is_right_or_refused(under_test):
    """Regions that call one compiled function with several shapes give the plain gradients, or backward raises.

    Source: pytorch/pytorch#166926; pytorch/pytorch#174993.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, y, z):
        compiled = under_test.compiled(lambda x: ops.multiply(ops.multiply(probe(x), x), x))
        return [checkpoint(lambda x: ops.multiply(compiled(ops.multiply(x, 2.0)), x), array) for array in (x, y, z)]

    def without(checkpoint, x):
        return checkpoint(lambda x: ops.multiply(ops.multiply(probe(x), x), x), x)

    x, y, z = under_test.array(1.0, -2.0), under_test.array(0.5, 1.0, -2.0), under_test.array(3.0, 1.0, -2.0, 0.5)
    under_test.attempt(program, x, y, z)
    under_test.run(without, x)


@clause("COMPILE-16", MUST, tests=Capability.KEYWORDS, needs=COMPILER, profile=Profile.COMPILE)
def test_keyword_arguments_of_a_compiled_region_take_effect(under_test):
    """A region in a compiled program is given its positional and keyword arguments.

    Source: torch.compile; pytorch/pytorch#80987.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, y):
        def region(x, *, other):
            return ops.multiply(ops.multiply(probe(x), x), other)

        return under_test.compiled(lambda x, y: checkpoint(region, x, other=y))(x, y)

    under_test.run(program, under_test.array(1.0, -2.0, 3.0, 0.5), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("COMPILE-17", SHOULD, needs=(*COMPILER, Fact.HELD_BYTES), profile=Profile.COMPILE)
def test_a_compiled_program_holds_less_with_regions(under_test):
    """Between forward and backward a compiled program of regions holds less than the plain program.

    Source: torch.compile, `activation_memory_budget`; jax.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            for _ in range(6):
                x = ops.multiply(ops.multiply(probe(x), x), 0.5)
            return x

        return under_test.compiled(lambda x: checkpoint(region, x))(x)

    seen = under_test.run(program, under_test.array(*[2.0] * 1024), memory=True)

    assert seen.held.after_forward < seen.plain.held.after_forward / 2, "the compiled program holds what it computed"
