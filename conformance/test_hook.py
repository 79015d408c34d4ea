"""HOOK: hooks.

A program's hooks see one backward, not two. Hooks on saved values that surround a region are shown the region's
arguments, which are all that it saves; hooks inside a region keep what they were given.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


@clause(
    "HOOK-01", MUST, tests=Capability.HOOKS_ONCE, needs=TORCH, profile=Profile.TORCH, kind=("gradient", "accumulated")
)
def test_hooks_of_a_parameter_fire_once_a_backward(under_test, kind):
    """A hook of a parameter fires once a backward, though the parameter is used in several regions and outside.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#24005; deepspeedai/DeepSpeed#2103.
    """
    ops, probe, held, fired = under_test.ops, under_test.probe(), {}, []

    def program(checkpoint, x, w):
        def region(x):
            return ops.sin(ops.multiply(probe(x), w))

        fired.clear()
        if kind == "gradient":
            w.register_hook(lambda gradient: fired.append(kind))
        else:
            w.register_post_accumulate_grad_hook(lambda w: fired.append(kind))
        held["y"] = ops.multiply(checkpoint(region, ops.cos(checkpoint(region, x))), w)
        return held["y"]

    def backward(pull):
        total = ops.sum(held.pop("y"))
        under_test.noted(total.backward)
        assert fired, "a hook did not fire"

    seen = under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25), backward=backward)

    assert len(fired) == 1, "a hook fired more than once"
    assert seen.backward[probe] == 2, "a region was not replayed once"


@clause(
    "HOOK-02",
    MUST,
    tests=(Capability.KEYWORDS, Capability.NESTED_ARGUMENTS),
    needs=TORCH,
    profile=Profile.TORCH,
    how=("positional", "keyword", "in a list", "twice"),
)
def test_surrounding_hooks_see_each_argument_once(under_test, how):
    """Hooks on saved values that surround a region are shown each array among its arguments once, however it was passed
    and however often, and nothing else.

    Source: torch.utils.checkpoint; pytorch/pytorch#178568; InternLM/xtuner#1979.
    """
    ops, probe, shown = under_test.ops, under_test.probe(), []

    def pack(array):
        shown.append(under_test.numpy(array).tolist())
        return array

    def program(checkpoint, x, w):
        def region(x, w=None, box=None, again=None):
            w = w if box is None else box[0]
            return ops.exp(ops.multiply(ops.sin(probe(x)), ops.cos(w)))

        shown.clear()
        with under_test.torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
            if how == "keyword":
                return checkpoint(region, x, w=w)
            if how == "in a list":
                return checkpoint(region, x, box=[w])
            return checkpoint(region, x, w, None, w) if how == "twice" else checkpoint(region, x, w)

    x, w = under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25)
    under_test.run(program, x, w)

    expected = [under_test.numpy(x).tolist(), under_test.numpy(w).tolist()]
    assert all(array in shown for array in expected), "an argument was not shown to the hooks"
    assert all(array in expected for array in shown), "another value than an argument was shown to the hooks"
    assert len(shown) == len(expected), "an argument was shown to the hooks more than once"


@clause("HOOK-03", MUST, tests=Capability.HOOKS_ONCE, needs=TORCH, profile=Profile.TORCH)
def test_hooks_inside_a_region_fire_once(under_test):
    """A gradient hook that a region puts on one of its intermediate values fires once a backward.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, fired = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            y.register_hook(lambda gradient: fired.append(True))
            return ops.exp(y)

        fired.clear()
        return checkpoint(region, x)

    def backward(pull):
        gradients = pull()
        assert fired, "a hook did not fire"
        return gradients

    under_test.run(program, under_test.array(), backward=backward)

    assert len(fired) == 1, "a hook fired more than once"


@clause("HOOK-04", MUST, tests=Capability.HOOKS_ONCE, needs=TORCH, profile=Profile.TORCH)
def test_hooks_inside_a_region_own_what_they_pack(under_test):
    """Backward unpacks what hooks inside a region packed in forward: these values are neither dropped nor recomputed.

    Source: pytorch/pytorch#115255.
    """
    ops, probe, packed, unpacked = under_test.ops, under_test.probe(), [], []

    def pack(array):
        if under_test.phase == "forward":
            packed.append(len(packed))
        return under_test.phase, array

    def unpack(pair):
        unpacked.append(pair[0])
        return pair[1]

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            with under_test.torch.autograd.graph.saved_tensors_hooks(pack, unpack):
                y = ops.tanh(ops.exp(y))
            return ops.exp(ops.cos(y))

        packed.clear()
        unpacked.clear()
        return checkpoint(region, x)

    under_test.run(program, under_test.array())

    assert packed, "the hooks were not asked to pack anything"
    assert unpacked == ["forward"] * len(packed), "the hooks did not get back what they had packed in forward"


@clause(
    "HOOK-05",
    MUST,
    tests=(Capability.SAVED_HOOKS_OPTION, Capability.POLICY_BY_OP),
    needs=TORCH,
    profile=Profile.TORCH,
    asked=(True, False),
)
def test_saved_results_pass_through_surrounding_hooks_on_request(under_test, asked):
    """With `respect_saved_tensors_hooks=True` a result that a policy saves passes through the surrounding hooks, once;
    with False it bypasses them.

    Source: torch.utils.checkpoint, `respect_saved_tensors_hooks`; pytorch/pytorch#190581.
    """
    ops, probe, shown, results = under_test.ops, under_test.probe(), [], []

    def pack(array):
        shown.append(under_test.numpy(array).tolist())
        return array

    def program(checkpoint, x):
        def region(x):
            y = ops.exp(x)
            results.append(under_test.numpy(y).tolist())
            return ops.tanh(ops.cos(probe(y)))

        shown.clear()
        results.clear()
        with under_test.torch.autograd.graph.saved_tensors_hooks(pack, lambda array: array):
            return checkpoint.using(save=["exp"], respect_saved_tensors_hooks=asked)(region, x)

    under_test.run(program, under_test.array())

    assert shown.count(results[0]) == (1 if asked else 0), "the hooks did not see the saved result as often as asked"


@clause("HOOK-06", MUST, needs=TORCH, profile=Profile.TORCH)
def test_forbidden_hooks_are_named_as_the_cause(under_test):
    """Where hooks on saved values are forbidden, a region works, or the error is the one with the given message.

    Source: torch.utils.checkpoint; pytorch/pytorch#147565.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.exp(ops.sin(probe(x)))

    def program(checkpoint, x):
        with under_test.torch.autograd.graph.disable_saved_tensors_hooks("no hooks here, says the program"):
            return checkpoint(region, x)

    seen = under_test.attempt(program, under_test.array())
    under_test.run(lambda checkpoint, x: checkpoint(region, x), under_test.array())

    assert seen.error is None or "no hooks here" in str(seen.error), "the error does not carry the given message"


@clause(
    "HOOK-07",
    MUST,
    tests=Capability.HOOKS_ONCE,
    needs=TORCH,
    profile=Profile.TORCH,
    on=("an argument", "a captured value", "a captured leaf"),
)
def test_hooks_that_a_region_puts_on_what_it_reads_act_once(under_test, on):
    """A gradient hook that a region puts on an argument, or on an array that it captures, acts once a backward.

    Source: torch.Tensor.register_hook.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        h = x if on == "a captured leaf" else ops.exp(x)

        def region(y, read=h):
            read.register_hook(lambda gradient: ops.multiply(gradient, 4.0))
            return ops.multiply(ops.sin(probe(read)), y)

        return checkpoint(region, ops.cos(x), *([h] if on == "an argument" else []))

    under_test.run(program, under_test.array())
