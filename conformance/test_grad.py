"""GRAD: gradients of the first order."""

from ckptspec.conformance.clause import MUST, Profile, clause


@clause("GRAD-01", MUST, profile=Profile.CORE, dtype=("float64", "float32"))
def test_values_and_gradients_equal_the_plain_run(under_test, dtype):
    """Values and gradients of a checkpointed region are those of the plain call, to the bit.

    Source: torch.utils.checkpoint; pytorch/pytorch#42212.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, w):
            return ops.tanh(ops.multiply(ops.sin(probe(x)), ops.exp(w)))

        return checkpoint(region, x, w)

    under_test.run(program, under_test.array(dtype=dtype), under_test.array(dtype=dtype))
