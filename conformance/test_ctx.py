"""CTX: ambient state.

A replay happens later, in surroundings that may have changed. Where new arrays go by default belongs to a region's
forward and comes back for its replay; what does not come back is recorded here.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


@clause("CTX-01", MUST, tests=Capability.DEFAULT_DEVICE, needs=TORCH, profile=Profile.TORCH)
def test_a_replay_has_the_default_device_of_forward(under_test):
    """New arrays in a replay go where they went in forward, if a context set the default device then.

    Source: pytorch/pytorch#124788; pytorch/pytorch#172802.
    """
    ops, probe, devices = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        devices.clear()

        def region(x):
            y = ops.sin(probe(x))
            devices.append(under_test.torch.empty(1).device.type)
            return ops.exp(y)

        with under_test.torch.device("meta"):
            return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert devices == ["meta", "meta"], "the replay had another default device"


@clause("CTX-02", SHOULD, tests=Capability.REENTRANT, needs=TORCH, profile=Profile.TORCH)
def test_a_reentrant_replay_has_the_default_device_of_forward(under_test):
    """The reentrant form, too, brings the default device of forward back for its replay.

    Source: pytorch/pytorch#124788; pytorch/pytorch#193922, where it was declined.
    """
    ops, probe, devices = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        devices.clear()

        def region(x):
            y = ops.sin(probe(x))
            devices.append(under_test.torch.empty(1).device.type)
            return ops.exp(y)

        with under_test.torch.device("meta"):
            return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert devices == ["meta", "meta"], "the replay had another default device"


@clause("CTX-03", MUST, tests=Capability.DEFAULT_DEVICE, needs=TORCH, profile=Profile.TORCH, by=("backward", "access"))
def test_a_replay_does_not_leave_its_default_device_behind(under_test, by):
    """After a replay, whether backward or an access to a saved value asked for it, new arrays go where they did before.

    Source: pytorch/pytorch#180423; pytorch/pytorch#189286.
    """
    ops, probe, devices = under_test.ops, under_test.probe(), []
    default = under_test.torch.empty(1).device.type

    def program(checkpoint, x):
        under_test.torch.set_default_device("meta")
        try:
            y = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
            if by == "access":
                getattr(y.grad_fn, "_saved_result", None)
        finally:
            under_test.torch.set_default_device(None)
        return y

    def backward(pull):
        gradients = pull()
        devices.append(under_test.torch.empty(1).device.type)
        if devices[-1] != default:  # other clauses run in this process
            under_test.torch.device(default).__exit__(None, None, None)
        return gradients

    under_test.run(program, under_test.array(), backward=backward)

    assert set(devices) == {default}, "the default device of forward stayed"


@clause("CTX-04", MAY, needs=TORCH, profile=Profile.TORCH, setting=("default dtype", "deterministic algorithms"))
def test_other_settings_are_those_of_backward(under_test, setting):
    """A replay sees the default dtype, and the demand for deterministic algorithms, as they are in backward.

    Source: torch.utils.checkpoint, first warning.
    """
    ops, probe, seen_inside = under_test.ops, under_test.probe(), []
    torch = under_test.torch

    def read():
        return torch.get_default_dtype() if setting == "default dtype" else torch.are_deterministic_algorithms_enabled()

    def write(value):
        if setting == "default dtype":
            torch.set_default_dtype(value)
        else:
            torch.use_deterministic_algorithms(value)

    before = read()

    def program(checkpoint, x):
        seen_inside.clear()

        def region(x):
            y = ops.sin(probe(x))
            seen_inside.append(read())
            return ops.exp(y)

        write(torch.float64 if setting == "default dtype" else True)
        try:
            return checkpoint(region, x)
        finally:
            write(before)

    under_test.run(program, under_test.array())

    assert seen_inside[1] == before, "the replay had the setting of forward"


@clause("CTX-05", MAY, needs=TORCH, profile=Profile.TORCH)
def test_a_function_mode_of_forward_is_not_entered_for_the_replay(under_test):
    """A mode that intercepts functions and was active in forward does not see the functions of the replay.

    Source: pytorch/pytorch#147995; pytorch/pytorch#148023.
    """
    ops, probe, phases = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        class Listening(under_test.torch.overrides.TorchFunctionMode):
            def __torch_function__(self, function, types, args=(), kwargs=None):
                phases.append(under_test.phase)
                return function(*args, **(kwargs or {}))

        with Listening():
            return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())

    assert "backward" not in phases, "the mode saw the replay"
