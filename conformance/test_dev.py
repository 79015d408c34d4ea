"""DEV: accelerators.

An accelerator has random generators of its own, one a device. A replay draws from each what forward drew from it,
however the region came by its arrays; what an implementation cannot preserve it refuses. All of RNG holds on an
accelerator too: these clauses add what only several devices, or the absence of one, can show.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, Profile, clause

ACCELERATOR = (Fact.ACCELERATOR, Fact.GLOBAL_RANDOM, Fact.TORCH_NAMES)


@clause("DEV-01", MUST, needs=ACCELERATOR, profile=Profile.DEVICE, where=("accelerator", "CPU", "both"))
def test_each_device_draws_in_a_replay_what_it_drew(under_test, where):
    """Random operations on the accelerator and on the CPU give in a replay what they gave in forward.

    Source: torch.utils.checkpoint, `preserve_rng_state`; pytorch/pytorch#14518.
    """
    ops, torch, probe = under_test.ops, under_test.torch, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(ops.sin(probe(x)))
            if where != "CPU":
                y = ops.exp(ops.dropout(y, 0.5))
            if where != "accelerator":
                y = ops.multiply(y, torch.rand(x.shape, dtype=x.dtype).to(x.device))
            return ops.sin(y)

        return checkpoint(region, x)

    under_test.run(program, under_test.array(shape=(64,)))


@clause("DEV-02", MUST, needs=(*ACCELERATOR, Fact.SEVERAL_ACCELERATORS), profile=Profile.DEVICE)
def test_arguments_on_two_accelerators_draw_what_they_drew(under_test):
    """A region whose arguments live on two devices of one type draws on both what forward drew there.

    Source: torch.utils.checkpoint, `preserve_rng_state`; pytorch/pytorch#14518.
    """
    ops, torch, probe = under_test.ops, under_test.torch, under_test.probe()

    def program(checkpoint, x, w):
        def region(x, y):
            x = ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))
            return ops.multiply(x, ops.exp(ops.dropout(y, 0.5)).to(x.device))

        return checkpoint(region, x, w.to(torch.device(x.device.type, 1)))

    under_test.run(program, under_test.array(shape=(64,)), under_test.array(shape=(64,)))


@clause("DEV-03", MUST, needs=ACCELERATOR, profile=Profile.DEVICE, container=("list", "dict", "dict of tuples"))
def test_an_accelerator_is_seen_in_a_container(under_test, container):
    """A region given an accelerator's array inside a container draws there what forward drew.

    Source: pytorch/pytorch#121462.
    """
    ops, torch, probe = under_test.ops, under_test.torch, under_test.probe()
    data = under_test.array(shape=(64,))

    def program(checkpoint, x):
        def region(on_cpu, box):
            found = {"list": lambda: box[0], "dict": lambda: box["a"], "dict of tuples": lambda: box["a"][1]}[
                container
            ]()
            return ops.exp(ops.multiply(ops.sin(probe(on_cpu)), ops.dropout(found, 0.5).cpu()))

        box = {"list": [data], "dict": {"a": data}, "dict of tuples": {"a": (torch.ones(2), data)}}[container]
        return checkpoint(region, x.cpu(), box)

    under_test.run(program, under_test.array(shape=(64,)))


@clause("DEV-04", MUST, tests=Capability.KEYWORDS, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_an_accelerator_is_seen_among_the_keywords(under_test):
    """A region given an accelerator's array by keyword only draws there what forward drew.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, data = under_test.ops, under_test.probe(), under_test.array(shape=(64,))

    def program(checkpoint, x):
        def region(on_cpu, data):
            return ops.exp(ops.multiply(ops.sin(probe(on_cpu)), ops.dropout(data, 0.5).cpu()))

        return checkpoint(region, x.cpu(), data=data)

    under_test.run(program, under_test.array(shape=(64,)))


@clause("DEV-12", MUST, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_an_accelerator_is_seen_that_a_region_captures(under_test):
    """A region that captures an accelerator's array, and is given none, draws there what forward drew.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, data = under_test.ops, under_test.probe(), under_test.array(shape=(64,))

    def program(checkpoint, x):
        def region(on_cpu):
            return ops.exp(ops.multiply(ops.sin(probe(on_cpu)), ops.dropout(data, 0.5).cpu()))

        return checkpoint(region, x.cpu())

    under_test.run(program, under_test.array(shape=(64,)))


@clause("DEV-05", MUST, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_a_state_returns_to_the_type_of_device_it_came_from(under_test):
    """A replay restores the states of the accelerator that forward used, whatever the default type is by then.

    Source: torch.utils.checkpoint, `DefaultDeviceType`; pytorch/pytorch#128671.
    """
    ops, probe, default = under_test.ops, under_test.probe(), under_test.api.DefaultDeviceType

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)

    def backward(pull):
        before = default.get_device_type()
        default.set_device_type("cpu")
        try:
            return pull()
        finally:
            default.set_device_type(before)

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause("DEV-06", MUST, needs=ACCELERATOR, profile=Profile.DEVICE, without=("get_rng_state", "device", "_initialized"))
def test_an_accelerator_without_random_state_is_no_wrong_gradient(under_test, without):
    """Where the accelerator lacks what the preservation of its state needs, the gradient is right or there is an error.

    Source: pytorch/pytorch#194478; pytorch/xla#4690.
    """
    ops, torch, probe, x = under_test.ops, under_test.torch, under_test.probe(), under_test.array(shape=(64,))

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)

    module = getattr(torch, x.device.type)
    taken = getattr(module, without)
    delattr(module, without)
    try:
        under_test.attempt(program, x)
    finally:
        setattr(module, without, taken)
    under_test.run(program, x)


@clause("DEV-07", MUST, needs=ACCELERATOR, profile=Profile.DEVICE, first=("accelerator", "meta"))
def test_arguments_without_data_do_not_hide_the_accelerator(under_test, first):
    """A region given an accelerator's array beside one on the device "meta", in any order, draws what forward drew.

    Not promised: a warning that there are arguments on several types of device.
    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, torch, probe = under_test.ops, under_test.torch, under_test.probe()

    def program(checkpoint, x):
        def region(*arguments):
            x = arguments[0 if first == "accelerator" else 1]
            return ops.exp(ops.dropout(ops.sin(probe(x)), 0.5))

        shapes = torch.ones(2, device="meta")
        return checkpoint(region, x, shapes) if first == "accelerator" else checkpoint(region, shapes, x)

    under_test.run(program, under_test.array(shape=(64,)))


@clause("DEV-08", MAY, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_the_default_device_type_can_be_chosen(under_test):
    """The type of device whose state is kept although no argument lives on it is the accelerator's, unless it is set.

    Source: torch.utils.checkpoint, `DefaultDeviceType`.
    """
    ops, probe, default = under_test.ops, under_test.probe(), under_test.api.DefaultDeviceType
    x = under_test.array(shape=(64,))

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)

    under_test.run(program, x)
    before = default.get_device_type()
    default.set_device_type("cpu")
    try:
        chosen = default.get_device_type()
    finally:
        default.set_device_type(before)

    assert before == x.device.type, "the default is not the accelerator"
    assert chosen == "cpu", "the type that was set is not the default"


@clause("DEV-09", MUST, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_an_accelerator_that_a_region_initializes_is_no_wrong_gradient(under_test):
    """Where the accelerator is initialized inside the region, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, torch, probe, x = under_test.ops, under_test.torch, under_test.probe(), under_test.array(shape=(64,))
    module, data = getattr(torch, x.device.type), under_test.array(shape=(64,))

    def program(checkpoint, x):
        on_cpu, module._initialized = x.cpu(), False

        def region(on_cpu):
            module._initialized = True
            return ops.exp(ops.multiply(ops.sin(probe(on_cpu)), ops.dropout(data, 0.5).cpu()))

        return checkpoint(region, on_cpu)

    def awake(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)

    try:
        under_test.attempt(program, x)
    finally:
        module._initialized = True
    under_test.run(awake, x)


@clause("DEV-10", MUST, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_states_can_be_taken_and_set_by_hand(under_test):
    """States that `get_device_states` found can be set again, by type; for the type "meta" nothing is set.

    Source: torch.utils.checkpoint, `get_device_states` and `set_device_states`.
    """
    ops, probe, api, x = under_test.ops, under_test.probe(), under_test.api, under_test.array(shape=(64,))

    def program(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.dropout(ops.sin(probe(x)), 0.5)), x)

    under_test.run(program, x)
    devices, states = api.get_device_states({"a": [x]}, 3)
    first = under_test.numpy(ops.uniform_like(x))
    api.set_device_states(devices, states, device_type=x.device.type)
    again = under_test.numpy(ops.uniform_like(x))
    api.set_device_states(devices, states, device_type="meta")
    later = under_test.numpy(ops.uniform_like(x))

    assert list(devices) == [x.device.index], "the device of an array in a container was not found"
    assert (first == again).all(), "the state was not set"
    assert (first != later).any(), "a state was set for a type of device that has none"


@clause("DEV-11", MAY, needs=ACCELERATOR, profile=Profile.DEVICE)
def test_a_region_that_moves_to_the_accelerator_draws_there_what_it_drew(under_test):
    """A region that moves its arguments from the CPU to the accelerator draws there in a replay what forward drew.

    Source: torch.utils.checkpoint, note on moving tensors to a new device.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        device = x.device

        def region(on_cpu):
            return ops.exp(ops.dropout(ops.sin(probe(on_cpu).to(device)), 0.5))

        return checkpoint(region, x.cpu())

    under_test.run(program, under_test.array(shape=(64,)))
