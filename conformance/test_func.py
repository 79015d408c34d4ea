"""FUNC: custom functions and transforms.

A region may contain operations with derivatives of their own, and stand inside a library's transforms. What an
implementation cannot do there it says, at the call and not in backward.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, Profile, clause

TORCH = (Fact.TORCH_NAMES,)


@clause("FUNC-01", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_custom_function_runs_backward_once(under_test):
    """An operation with a derivative of its own is executed once more by the replay, and its derivative once.

    Source: torch.utils.checkpoint; ar4/deepwave#120.
    """
    ops, probe, derivatives = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        class Sine(under_test.torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return ops.sin(probe(x))

            @staticmethod
            def backward(ctx, gradient):
                derivatives.append(True)
                (x,) = ctx.saved_tensors
                return ops.multiply(gradient, ops.cos(x))

        derivatives.clear()
        return checkpoint(lambda x: ops.exp(Sine.apply(ops.exp(x))), x)

    seen = under_test.run(program, under_test.array())

    assert (seen.forward[probe], seen.backward[probe]) == (1, 1), "the operation was not executed once, and once again"
    assert len(derivatives) == 1, "the derivative was not computed once"


@clause("FUNC-02", MUST, needs=TORCH, profile=Profile.TORCH)
def test_saved_values_come_back_as_they_were(under_test):
    """A custom operation's saved arrays need a gradient in its derivative as in the plain run; a captured one that
    needs none is the very object that was saved.

    Source: pytorch/pytorch#127959; PaddlePaddle/Paddle#62979.
    """
    ops, probe, mask, found = under_test.ops, under_test.probe(), under_test.array(1.0, 0.0, 1.0, 1.0), []

    def program(checkpoint, x):
        class Masked(under_test.torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, mask):
                ctx.save_for_backward(x, mask)
                return ops.multiply(ops.sin(probe(x)), mask)

            @staticmethod
            def backward(ctx, gradient):
                x, saved = ctx.saved_tensors
                found.append([under_test.needs_gradient(x), under_test.needs_gradient(saved), saved is mask])
                return ops.multiply(gradient, ops.multiply(ops.cos(x), saved)), None

        return checkpoint(lambda x: ops.exp(Masked.apply(ops.exp(x), mask)), x)

    under_test.run(program, under_test.array())

    assert found[-1] == found[0], "a saved array came back otherwise than in the plain run"


@clause("FUNC-03", MUST, needs=TORCH, profile=Profile.TORCH)
def test_saved_values_read_twice_are_right_or_refused(under_test):
    """Where a custom operation's derivative reads its saved values twice, the gradient is right or there is an error.

    Source: torch.utils.checkpoint; pytorch/pytorch#82156; state-spaces/mamba#909.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        class Sine(under_test.torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return ops.sin(probe(x))

            @staticmethod
            def backward(ctx, gradient):
                (x,), (again,) = ctx.saved_tensors, ctx.saved_tensors
                return ops.multiply(gradient, ops.multiply(ops.cos(x), ops.divide(again, x)))

        return checkpoint(lambda x: ops.exp(Sine.apply(ops.exp(x))), x)

    under_test.attempt(program, under_test.array())


@clause("FUNC-04", MAY, tests=Capability.FORWARD_GRAPH, needs=TORCH, profile=Profile.TORCH)
def test_saved_values_can_be_read_outside_a_backward(under_test):
    """What a region's operation saved can be read from the graph outside a backward; each reading is a replay.

    Source: torch.utils.checkpoint; pytorch/pytorch#82156.
    """
    ops, probe, held = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        held["y"] = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
        return held["y"]

    def backward(pull):
        node = held.pop("y").grad_fn
        return under_test.noted(lambda: [node._saved_result, node._saved_result]), pull()

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[probe] == 3, "the readings and the backward were not a replay each"


@clause("FUNC-05", MUST, tests=Capability.FORWARD_MODE, needs=(Fact.FORWARD_MODE,))
def test_derivatives_in_forward_mode_are_right(under_test):
    """A derivative in forward mode through a region is that of the plain call.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, tangent = under_test.ops, under_test.probe(), under_test.array(1.0, -2.0, 3.0, 0.5)

    def program(checkpoint, x):
        def region(x):
            return ops.exp(ops.sin(x))

        derivatives = under_test.forward_derivative(lambda x: checkpoint(region, x), x, tangent)
        return derivatives, checkpoint(lambda x: region(probe(x)), x)

    under_test.run(program, under_test.array())


@clause("FUNC-06", MUST, needs=(Fact.BATCHING,))
def test_a_region_mapped_over_a_batch_is_right_or_refused_at_the_call(under_test):
    """A region inside a function that is mapped over a batch gives right gradients, or is refused when it is called.

    Source: pytorch/pytorch#131191.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.exp(ops.sin(probe(x)))

    def program(checkpoint, x):
        return under_test.batched(lambda row: checkpoint(region, row))(x)

    seen = under_test.attempt(program, under_test.array(shape=(3, 4)))
    under_test.run(lambda checkpoint, x: checkpoint(region, x), under_test.array())

    assert seen.error is None or seen.phase == "forward", "the region was not refused when it was called"


@clause("FUNC-07", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_gradient_transform_over_a_region_is_right_or_refused(under_test):
    """A function that contains a region, given to the library's gradient transform, has a right gradient or is refused.

    Source: torch.utils.checkpoint; pytorch/pytorch#122729.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.exp(ops.sin(x))

    def program(checkpoint, x):
        gradient = under_test.torch.func.grad(lambda x: ops.sum(checkpoint(region, x)))
        return under_test.stop_gradient(gradient(under_test.stop_gradient(x))), ops.sin(x)

    under_test.attempt(program, under_test.array(), replays=0)
    under_test.run(lambda checkpoint, x: checkpoint(lambda x: region(probe(x)), x), under_test.array())


@clause("FUNC-08", MUST, needs=TORCH, profile=Profile.TORCH)
def test_anomaly_detection_changes_nothing(under_test):
    """With the library's anomaly detection, values, gradients and the number of replays are what they are without.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        with under_test.torch.autograd.detect_anomaly():
            return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        with under_test.torch.autograd.detect_anomaly():
            return pull()

    seen = under_test.run(program, under_test.array(), backward=backward)

    assert seen.backward[probe] == 1, "the region was not replayed once"


@clause("FUNC-09", MAY, needs=TORCH, profile=Profile.TORCH)
def test_an_array_that_cannot_be_saved_is_refused_as_in_the_plain_run(under_test):
    """An argument that the plain run refuses to save for backward, made where nothing is recorded, is refused too.

    Source: torch.utils.checkpoint; torch.inference_mode.
    """
    ops, probe, refused = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        with under_test.torch.inference_mode():
            data = ops.exp(ops.sin(under_test.array()))
        try:
            checkpoint(lambda x, data: ops.multiply(x, data), x, data)
        except RuntimeError as error:
            refused.append(error)
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(program, under_test.array())

    assert len(refused) == 3, "what the plain run refuses was accepted"
