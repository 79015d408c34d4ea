"""WRAP: modules that are checkpointed whenever they are called.

Instead of a call, a module is given; whoever calls it afterwards, calls a region. The module's place in the model, the
names of its parameters and what is stored of them stay as they were.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause

MODULES = (Fact.TORCH_NAMES,)
WRAPPER = Capability.WRAPPER


@clause("WRAP-01", MUST, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_wrapping_does_not_change_what_is_stored(under_test):
    """What is stored of a model with a wrapped module can be loaded into one without, and the other way round.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper, state-dict hooks.
    """
    torch, ops, probe, keys = under_test.torch, under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = torch.nn.Linear(4, 4)

            def forward(self, x):
                return ops.sin(self.inner(ops.exp(probe(x))))

        stored, wrapped, plain = (torch.nn.Sequential(Model()).to(x.device) for _ in range(3))
        wrapped[0] = checkpoint.wrapped(wrapped[0])
        under_test.noted(wrapped.load_state_dict, stored.state_dict(), False)
        under_test.noted(plain.load_state_dict, wrapped.state_dict(), False)  # an unknown name is no error
        keys.append(list(wrapped.state_dict()))
        return ops.add(under_test.noted(wrapped, x), plain(x))

    under_test.run(program, under_test.array(dtype="float32"))

    assert keys[0] == keys[-1], "the names under which parameters are stored have changed"


@clause("WRAP-02", MUST, tests=(WRAPPER, Capability.KEYWORDS), needs=MODULES, profile=Profile.WRAP)
def test_a_wrapped_module_takes_keyword_arguments(under_test):
    """A wrapped module is called with the arguments that the module takes, positional and keyword ones.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper; pytorch/pytorch#80987.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    def program(checkpoint, x, y):
        class Model(torch.nn.Module):
            def forward(self, x, *, other, scale=1.0):
                return ops.exp(ops.multiply(ops.sin(ops.multiply(probe(x), other)), scale))

        return under_test.noted(lambda: checkpoint.wrapped(Model())(x, other=y, scale=2.0))

    under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25))


@clause("WRAP-03", MUST, tests=WRAPPER, needs=(*MODULES, Fact.HELD_BYTES), profile=Profile.WRAP)
def test_a_wrapped_module_holds_no_more_than_a_region(under_test):
    """Between forward and backward a wrapped module holds as much as the call of a region does, and less than plain.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    class Model(torch.nn.Module):
        def forward(self, x):
            for _ in range(8):
                x = ops.sin(ops.exp(probe(x)))
            return x

    def wrapped(checkpoint, x):
        return under_test.noted(checkpoint.wrapped(Model()), x)

    def called(checkpoint, x):
        return checkpoint(Model(), x)

    x = under_test.array(shape=(256,))
    one, other = (under_test.run(program, x, memory=True) for program in (wrapped, called))

    assert one.held.after_forward <= other.held.after_forward, "the wrapped module holds more than a region"
    assert one.held.after_forward < one.plain.held.after_forward / 2, "the wrapped module holds what it computed"


@clause("WRAP-04", MUST, tests=Capability.WRAPPED_PARTS, needs=MODULES, profile=Profile.WRAP)
def test_a_predicate_chooses_which_modules_are_wrapped(under_test):
    """Of a model's parts exactly those are checkpointed that the predicate chooses, however deep they are.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper, `apply_activation_checkpointing`.
    """
    torch, ops, chosen, others = (
        under_test.torch,
        under_test.ops,
        under_test.probe("chosen"),
        under_test.probe("others"),
    )

    def program(checkpoint, x):
        class Chosen(torch.nn.Module):
            def forward(self, x):
                return ops.sin(ops.exp(chosen(x)))

        class Other(torch.nn.Module):
            def forward(self, x):
                return ops.sin(ops.exp(others(x)))

        model = torch.nn.Sequential(Chosen(), Other(), torch.nn.Sequential(Other(), torch.nn.Sequential(Chosen())))
        checkpoint.wrap_parts(model, lambda module: isinstance(module, Chosen))
        return under_test.noted(model, x)

    seen = under_test.run(program, under_test.array(), replays=2)

    assert seen.backward[chosen] == 2, "a chosen module was not replayed, or more than once"
    assert seen.backward[others] == 0, "a module that was not chosen was replayed"


@clause("WRAP-05", MUST, tests=WRAPPER, needs=(*MODULES, Fact.GLOBAL_RANDOM), profile=Profile.WRAP)
def test_a_wrapped_module_is_invisible_to_differentiation(under_test):
    """A wrapped module gives the values and gradients of the module: several inputs and outputs, random operations.

    Source: torch.distributed._composable, `checkpoint`; pytorch/pytorch#91265.
    """
    torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

    def program(checkpoint, x, y):
        class Model(torch.nn.Linear):
            def forward(self, x, y):
                x = ops.exp(ops.dropout(super().forward(ops.sin(probe(x))), 0.5))
                return x, ops.tanh(ops.multiply(x, y))

        module = checkpoint.wrapped(Model(64, 64, dtype=torch.float64, device=x.device))
        first, second = under_test.noted(module, x, y)
        kept[:] = [list(module.parameters()), ops.sum(ops.multiply(first, second))]
        return first, second

    def backward(pull):
        parameters, total = kept
        under_test.noted(total.backward)
        return [p.grad for p in parameters]

    x, y = under_test.array(shape=(64,)), under_test.array(shape=(64,))
    under_test.run(program, x, y)
    under_test.run(program, x, y, backward=backward)


@clause("WRAP-06", SHOULD, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_attributes_of_a_wrapped_module_can_be_reached(under_test):
    """Attributes and methods of a module, and the parts of a sequence, are reached through the wrapped one.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper; pytorch/pytorch#84908.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    def program(checkpoint, x):
        class Model(torch.nn.Sequential):
            scale = 2.0

            def forward(self, x):
                return ops.sin(ops.exp(probe(super().forward(x))))

            def scaled(self, x):
                return ops.multiply(x, self.scale)

        module = checkpoint.wrapped(Model(torch.nn.Tanh(), torch.nn.Sigmoid()))
        y = under_test.noted(module, x)
        return under_test.noted(lambda: module[1](module.scaled(ops.multiply(y, module.scale))))

    under_test.run(program, under_test.array())


@clause("WRAP-07", MUST, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_parameters_of_a_wrapped_module_keep_their_names(under_test):
    """The parameters of a wrapped module have the names that they have in the module.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper, `named_parameters`.
    """
    torch, ops, probe, names = under_test.torch, under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        class Model(torch.nn.Sequential):
            def forward(self, x):
                return ops.sin(super().forward(ops.exp(probe(x))))

        module = checkpoint.wrapped(Model(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)).to(x.device))
        names.append([name for name, _ in module.named_parameters()])
        return under_test.noted(module, x)

    under_test.run(program, under_test.array(dtype="float32"))

    assert names[0] == names[-1], "the names of the parameters have changed"


@clause(
    "WRAP-08",
    MUST,
    tests=(WRAPPER, Capability.EARLY_STOP, Capability.NO_EARLY_STOP),
    needs=MODULES,
    profile=Profile.WRAP,
)
def test_options_of_the_wrapper_hold_for_each_call(under_test):
    """Options given when a module is wrapped hold for each of its calls.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper; pytorch/pytorch#160781.
    """
    torch, ops, head, tail = under_test.torch, under_test.ops, under_test.probe("head"), under_test.probe("tail")

    def program(checkpoint, x):
        class Model(torch.nn.Module):
            def forward(self, x):
                return tail(ops.add(ops.exp(ops.sin(head(x))), 1.0))

        module = checkpoint.using(early_stop=False).wrapped(Model())
        return under_test.noted(module, under_test.noted(module, x))

    seen = under_test.run(program, under_test.array(), replays=2)

    assert seen.backward[tail] == 2, "an option of the wrapper was lost"


@clause("WRAP-09", MUST, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_a_wrapped_module_may_be_called_several_times(under_test):
    """A wrapped module may be called several times before backward, and each call is replayed once.

    Source: fairscale.nn.checkpoint; facebookresearch/fairscale#777.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    def program(checkpoint, x):
        class Model(torch.nn.Module):
            def forward(self, x):
                return ops.sin(ops.exp(probe(x)))

        module = checkpoint.wrapped(Model())
        return under_test.noted(module, ops.cos(under_test.noted(module, under_test.noted(module, x))))

    seen = under_test.run(program, under_test.array(), replays=3)

    assert seen.backward[probe] == 3, "a call was not replayed, or more than once"


@clause("WRAP-10", MUST, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_wrapped_modules_may_contain_each_other(under_test):
    """A wrapped module inside a wrapped module gives the values and gradients of the plain ones.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    def program(checkpoint, x):
        class Layer(torch.nn.Linear):
            def forward(self, x):
                return ops.sin(super().forward(ops.exp(probe(x))))

        layers = [checkpoint.wrapped(Layer(4, 4, device=x.device)) for _ in range(2)]
        model = checkpoint.wrapped(torch.nn.Sequential(*layers, torch.nn.Tanh()))
        return under_test.noted(model, x)

    under_test.run(program, under_test.array(dtype="float32"))


@clause("WRAP-11", MUST, tests=WRAPPER, needs=(*MODULES, Fact.RELEASE), profile=Profile.WRAP)
def test_a_wrapped_module_is_released(under_test):
    """A wrapped module, and the module inside, are released when nobody holds them and their results any more.

    Source: pytorch/pytorch#80151.
    """
    torch, ops, probe, alive = under_test.torch, under_test.ops, under_test.probe(), []

    class Model(torch.nn.Module):
        def forward(self, x):
            return ops.sin(ops.exp(probe(x)))

    def program(checkpoint, x):
        module, unused = checkpoint.wrapped(Model()), checkpoint.wrapped(Model())
        alive[:] = [under_test.watch(module), under_test.watch(unused)]
        y = under_test.noted(module, x)
        under_test.noted(unused, x)
        return y

    def backward(pull):
        alive[1] = alive[1]()
        return pull()

    under_test.run(program, under_test.array(), backward=backward)

    assert not alive[1], "a module is alive although its results are not"
    assert not alive[0](), "a module is alive after backward"


@clause("WRAP-12", MUST, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_a_module_that_is_wrapped_twice_is_right_or_refused(under_test):
    """Wrapping a module a second time gives the values and gradients of the module, or is refused.

    Source: torch.distributed._composable, `checkpoint`.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    class Model(torch.nn.Module):
        def forward(self, x):
            return ops.sin(ops.exp(probe(x)))

    def program(checkpoint, x):
        return under_test.noted(checkpoint.wrapped(checkpoint.wrapped(Model())), x)

    def once(checkpoint, x):
        return under_test.noted(checkpoint.wrapped(Model()), x)

    under_test.attempt(program, under_test.array())
    under_test.run(once, under_test.array())


@clause("WRAP-13", MAY, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_a_wrapped_module_is_no_longer_of_its_class(under_test):
    """What a wrapper returns is a module, of a class of its own.

    Source: torch.distributed.algorithms._checkpoint.checkpoint_wrapper.
    """
    torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

    class Model(torch.nn.Module):
        def forward(self, x):
            return ops.sin(ops.exp(probe(x)))

    def program(checkpoint, x):
        kept.append(checkpoint.wrapped(Model()))
        return under_test.noted(kept[-1], x)

    under_test.run(program, under_test.array())

    assert isinstance(kept[-1], torch.nn.Module), "what the wrapper returned is no module"
    assert not isinstance(kept[-1], Model), "the wrapped module is still of its class"


@clause(
    "WRAP-14",
    MUST,
    tests=WRAPPER,
    needs=(*MODULES, Fact.EAGER),
    profile=Profile.WRAP,
    exception=("KeyError", "KeyboardInterrupt"),
)
def test_a_wrapped_module_can_be_called_again_after_an_exception(under_test, exception):
    """An exception leaves a wrapped module's forward as it was raised; what is computed next is right.

    Source: torch.distributed._composable, `checkpoint`, the hook that is called in any case.
    """
    torch, ops, probe, caught = under_test.torch, under_test.ops, under_test.probe(), []
    kind = {"KeyError": KeyError, "KeyboardInterrupt": KeyboardInterrupt}[exception]

    class Model(torch.nn.Module):
        is_failing = True

        def forward(self, x):
            if Model.is_failing:
                raise kind("the module fails")
            return ops.sin(ops.exp(probe(x)))

    def program(checkpoint, x):
        module = checkpoint.wrapped(Model())
        Model.is_failing = True
        try:
            module(x)
        except kind:
            caught.append(True)
        Model.is_failing = False
        y = ops.tanh(ops.multiply(x, x))  # is no part of a region
        return under_test.noted(module, ops.cos(under_test.noted(module, y)))

    under_test.run(program, under_test.array(), replays=2)

    assert len(caught) == 3, "the exception was lost"


@clause("WRAP-15", MUST, tests=WRAPPER, needs=MODULES, profile=Profile.WRAP)
def test_a_wrapped_module_that_calls_itself_is_right_or_refused(under_test):
    """A wrapped module whose forward calls it again gives the values and gradients of the plain one, or raises.

    Source: torch.distributed._composable, `checkpoint`.
    """
    torch, ops, probe = under_test.torch, under_test.ops, under_test.probe()

    def program(checkpoint, x):
        class Model(torch.nn.Module):
            def forward(self, x, depth):
                x = ops.sin(ops.exp(probe(x)))
                return ops.exp(module(x, depth - 1)) if depth else x

        module = checkpoint.wrapped(Model())
        return under_test.noted(module, x, 2)

    def without(checkpoint, x):
        class Model(torch.nn.Module):
            def forward(self, x):
                return ops.sin(ops.exp(probe(x)))

        return under_test.noted(checkpoint.wrapped(Model()), x)

    under_test.attempt(program, under_test.array())
    under_test.run(without, under_test.array())
