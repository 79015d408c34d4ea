"""SIDE: side effects.

A replay runs the function again, and with it everything that it does besides computing. Nothing here binds; it is
recorded, because users ask: their counters count twice, their running statistics move twice.
"""

from ckptspec.conformance.backend import Fact
from ckptspec.conformance.clause import MAY, SHOULD, Profile, clause


@clause("SIDE-01", MAY, needs=(Fact.EAGER,))
def test_a_side_effect_happens_again_in_the_replay(under_test):
    """What the function does besides computing happens in forward and again in the replay.

    Source: torch.utils.checkpoint, first warning; pytorch/pytorch#70865.
    """
    ops, probe, effects = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        effects.clear()

        def region(x):
            effects.append(under_test.phase)
            return ops.exp(ops.sin(probe(x)))

        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert effects == ["forward", "backward"], "the side effect did not happen once in forward and once in backward"


@clause("SIDE-02", MAY, needs=(Fact.TORCH_NAMES,), profile=Profile.TORCH)
def test_running_statistics_move_again_in_the_replay(under_test):
    """A batch normalisation's running statistics are updated in forward and again in the replay.

    Source: pytorch/pytorch#96136; pytorch/pytorch#62471; facebookresearch/fairscale#1035.
    """
    ops, probe, counts = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        norm = under_test.torch.nn.BatchNorm1d(3).to(x.device)
        counts.append(norm)
        return checkpoint(lambda x: ops.exp(norm(ops.sin(probe(x)))), x)

    under_test.run(program, under_test.array(shape=(4, 3), dtype="float32"))

    assert int(counts[-1].num_batches_tracked) == 2, "the statistics were not updated twice"


@clause("SIDE-04", SHOULD, needs=(Fact.TORCH_NAMES,), profile=Profile.TORCH, hook=("forward", "backward"))
def test_module_hooks_fire_with_what_they_watch(under_test, hook):
    """A module's forward hooks fire in forward and in the replay; its backward hooks once a backward.

    Source: torch.utils.checkpoint.
    """
    ops, probe, fired = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        fired.clear()
        layer = under_test.torch.nn.Tanh()
        if hook == "forward":
            layer.register_forward_hook(lambda *_: fired.append(under_test.phase))
        else:
            layer.register_full_backward_hook(lambda *_: fired.append(under_test.phase))
        return checkpoint(lambda x: ops.exp(layer(ops.sin(probe(x)))), x)

    under_test.run(program, under_test.array())

    expected = ["forward", "backward"] if hook == "forward" else ["backward"]
    assert fired == expected, "the hook fired at other times"
