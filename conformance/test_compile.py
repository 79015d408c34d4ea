"""COMPILE: regions and compilers.

A compiler takes a program apart and puts it together again. A region comes out as it went in: the same values, the same
random numbers, executed once in forward and once more for backward, and not kept because the compiler found that it had
been computed before. A probe's counts show this; they are of real executions, not of traces.

Some programs here compute exactly in binary arithmetic: they are compared with the same program, plain and uncompiled.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

COMPILER = (Fact.COMPILER,)


@clause(
    "COMPILE-01", MUST, needs=COMPILER, profile=Profile.COMPILE, result=("array", "tuple"), dtype=("float64", "float32")
)
def test_a_compiled_program_with_a_region_is_that_program(under_test, result, dtype):
    """A compiled program that contains a region has the values and gradients of the uncompiled one without.

    Source: torch.compile; jax.checkpoint under jax.jit.
    """
    ops, probe = under_test.ops, under_test.probe()

    def step(checkpoint, x, w):
        def region(x):
            y = ops.multiply(ops.multiply(probe(x), w), ops.add(x, 1.0))
            return y if result == "array" else (y, ops.multiply(y, w))

        y = checkpoint(region, ops.multiply(x, 2.0))
        return ops.multiply(y, x) if result == "array" else ops.multiply(*y)

    def program(checkpoint, x, w):
        return under_test.compiled(lambda x, w: step(checkpoint, x, w))(x, w)

    x, w = under_test.array(1.0, -2.0, 3.0, 0.5, dtype=dtype), under_test.array(0.5, -1.0, 2.0, 0.25, dtype=dtype)
    under_test.run(program, x, w, plain=step)


@clause("COMPILE-02", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_compiled_region_is_replayed_exactly_once(under_test):
    """In a compiled program a region is executed once in forward and once more in backward.

    Source: torch.compile; pytorch/pytorch#142862.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def step(x):
            return ops.cos(checkpoint(lambda x: ops.tanh(ops.exp(ops.sin(probe(x)))), x))

        return under_test.compiled(step)(x)

    seen = under_test.run(program, under_test.array())

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
            return ops.multiply(
                checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x), ops.uniform_like(x)
            )

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
        return ops.exp(ops.sin(ops.multiply(probe(x), factor[0])))

    def program(checkpoint, x):
        checkpoint = checkpoint.using(context_fn=lambda: (Scaled(), Scaled()))
        return under_test.compiled(lambda x: checkpoint(region, x))(x)

    def plain(checkpoint, x):
        with Scaled():
            return region(x)

    def without(checkpoint, x):
        return under_test.compiled(lambda x: checkpoint(region, x))(x)

    under_test.attempt(program, under_test.array(), plain=plain)
    under_test.run(without, under_test.array())


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
    """What a region in a compiled program writes to is changed by its forward as by the plain call, or it is refused.

    Not promised: what a replay does to it.
    Source: torch.compile, higher-order operators.
    """
    ops, probe, count = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        count.clear()

        def region(x):
            count.append(1)
            return ops.exp(ops.sin(probe(x)))

        y = under_test.compiled(lambda x: checkpoint(region, x))(x)
        return y, len(count)

    def without(checkpoint, x):
        return under_test.compiled(lambda x: checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x))(x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())


@clause("COMPILE-11", MAY, tests=Capability.DECORATOR, needs=COMPILER, profile=Profile.COMPILE)
def test_the_decorator_form_can_be_compiled(under_test):
    """A compiled program may call a decorated function.

    Source: pytorch/pytorch#189412.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        region = checkpoint.decorator()(lambda x: ops.exp(ops.sin(probe(x))))
        return under_test.compiled(lambda x: ops.cos(region(x)))(x)

    under_test.run(program, under_test.array())


@clause("COMPILE-12", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_regions_in_a_compiled_program_may_be_nested(under_test):
    """Regions inside regions of a compiled program give its values and gradients.

    Not promised: that each region is replayed on its own.
    Source: torch.compile; pytorch/pytorch#174993.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def inner(x):
            return ops.exp(ops.sin(probe(x)))

        def outer(x):
            return ops.cos(checkpoint(inner, ops.tanh(checkpoint(inner, x))))

        return under_test.compiled(lambda x: checkpoint(outer, ops.multiply(x, 2.0)))(x)

    under_test.run(program, under_test.array())


@clause("COMPILE-13", MUST, tests=Capability.POLICY_BY_OP, needs=COMPILER, profile=Profile.COMPILE)
def test_a_policy_holds_in_a_compiled_program(under_test):
    """In a compiled program, too, an operation that a policy saves is not executed again, and others are.

    Source: torch.utils.checkpoint, `create_selective_checkpoint_contexts`; pytorch/pytorch#142862.
    """
    ops, saved, other = under_test.ops, under_test.probe("saved"), under_test.probe("other")

    def program(checkpoint, x):
        selective = checkpoint.using(save=["probe"])

        def step(x):
            y = selective(lambda x: ops.sin(ops.exp(saved(ops.exp(x)))), x)
            return checkpoint(lambda y: ops.sin(ops.exp(other(y))), y)

        return under_test.compiled(step)(x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[saved] == 0, "a saved operation was executed again"
    assert seen.backward[other] == 1, "the other region was not replayed, or more than once"


@clause("COMPILE-14", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_compiled_program_follows_the_shapes_that_it_is_given(under_test):
    """A compiled program that is called with arrays of several shapes is right each time.

    Source: pytorch/pytorch#166926; pytorch/pytorch#144035.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, y, z):
        step = under_test.compiled(lambda x: ops.cos(checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)))
        return step(x), step(y), step(z)

    seen = under_test.run(
        program, under_test.array(), under_test.array(shape=(7,)), under_test.array(shape=(3, 2)), replays=3
    )

    assert seen.backward[probe] == 3, "a region was not replayed, or more than once"


@clause("COMPILE-15", MUST, needs=COMPILER, profile=Profile.COMPILE)
def test_a_region_that_calls_compiled_code_of_several_shapes_is_right_or_refused(under_test):
    """Regions that call one compiled function with several shapes give the plain gradients, or backward raises.

    Source: pytorch/pytorch#166926; pytorch/pytorch#174993.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, y, z):
        compiled = under_test.compiled(lambda x: ops.exp(ops.sin(probe(x))))
        return [checkpoint(lambda x: ops.cos(compiled(ops.tanh(x))), array) for array in (x, y, z)]

    def without(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.attempt(program, under_test.array(), under_test.array(shape=(7,)), under_test.array(shape=(11,)))
    under_test.run(without, under_test.array())


@clause("COMPILE-16", MUST, tests=Capability.KEYWORDS, needs=COMPILER, profile=Profile.COMPILE)
def test_keyword_arguments_of_a_compiled_region_take_effect(under_test):
    """A region in a compiled program is given its positional and keyword arguments.

    Source: torch.compile; pytorch/pytorch#80987.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, y):
        def region(x, *, other):
            return ops.exp(ops.multiply(ops.sin(probe(x)), other))

        return under_test.compiled(lambda x, y: checkpoint(region, x, other=y))(x, y)

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("COMPILE-17", SHOULD, needs=(*COMPILER, Fact.HELD_BYTES), profile=Profile.COMPILE)
def test_a_compiled_program_holds_less_with_regions(under_test):
    """Between forward and backward a compiled program with regions holds less than the same program without.

    Source: torch.compile, `activation_memory_budget`; jax.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            for _ in range(8):
                x = ops.sin(ops.exp(probe(x)))
            return x

        return under_test.compiled(lambda x: checkpoint(region, x))(x)

    seen = under_test.run(program, under_test.array(shape=(1024,)), memory=True)

    assert seen.held.after_forward < seen.plain.held.after_forward / 2, "the compiled program holds what it computed"
