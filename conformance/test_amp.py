"""AMP: autocast.

A replay that computes in another precision than forward computes something else. Autocast is part of a region's
surroundings as the generator is: each replay has that of forward, all of it, and never that of backward.
"""

from ckptspec.conformance.backend import Fact
from ckptspec.conformance.clause import MUST, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


@clause(
    "AMP-01",
    MUST,
    needs=TORCH,
    profile=Profile.TORCH,
    dtype=("bfloat16", "float16"),
    cache=(True, False),
)
def test_a_replay_has_the_autocast_of_forward(under_test, dtype, cache):
    """A replay runs under forward's autocast: whether it is on, its dtype, and whether casts are cached.

    Source: torch.utils.checkpoint; pytorch/pytorch#71124; facebookresearch/fairscale#1199;
    NVIDIA/TransformerEngine#791.
    """
    ops, probe, states = under_test.ops, under_test.probe(), []
    torch = under_test.torch

    def program(checkpoint, x, w):
        states.clear()
        kind = x.device.type

        def region(x, w):
            y = ops.matmul(probe(x), w)
            states.append((y.dtype, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)))
            states.append(torch.is_autocast_cache_enabled())
            return ops.exp(ops.sin(y))

        with torch.autocast(kind, dtype=getattr(torch, dtype), cache_enabled=cache):
            return checkpoint(region, x, w)

    under_test.run(
        program, under_test.array(shape=(4, 3), dtype="float32"), under_test.array(shape=(3, 2), dtype="float32")
    )

    assert states[:2] == states[2:], "the replay had another autocast"


@clause("AMP-02", MUST, needs=TORCH, profile=Profile.TORCH, forward=("without", "disabled", "another dtype"))
def test_a_replay_does_not_have_the_autocast_of_backward(under_test, forward):
    """An autocast that is active around backward does not reach the replay.

    Source: torch.utils.checkpoint; facebookresearch/fairscale#1199.
    """
    ops, probe = under_test.ops, under_test.probe()
    torch, dtypes = under_test.torch, []
    kind = under_test.array().device.type

    def program(checkpoint, x, w):
        dtypes.clear()

        def region(x, w):
            y = ops.matmul(probe(x), w)
            dtypes.append(y.dtype)
            return ops.exp(ops.sin(y))

        if forward == "without":
            return checkpoint(region, x, w)
        with torch.autocast(kind, dtype=torch.float16, enabled=forward != "disabled"):
            return checkpoint(region, x, w)

    def backward(pull):
        with torch.autocast(kind, dtype=torch.bfloat16):
            return pull()

    under_test.run(
        program,
        under_test.array(shape=(4, 3), dtype="float32"),
        under_test.array(shape=(3, 2), dtype="float32"),
        backward=backward,
    )

    assert dtypes[0] == dtypes[1], "the replay computed in another dtype"


@clause(
    "AMP-03",
    MUST,
    needs=TORCH,
    profile=Profile.TORCH,
    use=("inside", "before", "before without gradient", "twice"),
    cache=(True, False),
)
def test_cached_casts_of_weights_do_not_matter(under_test, use, cache):
    """Gradients are right whether or not autocast has a weight's cast in its cache when the region or its replay runs.

    Source: pytorch/pytorch#141896.
    """
    ops, probe = under_test.ops, under_test.probe()
    torch = under_test.torch

    def program(checkpoint, x, w):
        def region(x, w):
            y = ops.matmul(probe(x), w)
            return ops.exp(ops.sin(ops.add(y, ops.matmul(x, w)) if use == "twice" else y))

        with torch.autocast(x.device.type, dtype=torch.bfloat16, cache_enabled=cache):
            if use == "before without gradient":
                with torch.no_grad():
                    ops.matmul(x, w)
            # Cut off: gradients that met in a cached cast would be added in another dtype than those of two casts.
            z = under_test.stop_gradient(ops.matmul(x, w)) if use == "before" else 0.0
            return ops.add(checkpoint(region, x, w), z)

    under_test.run(
        program, under_test.array(shape=(4, 3), dtype="float32"), under_test.array(shape=(3, 2), dtype="float32")
    )
