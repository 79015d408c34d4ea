"""DET: a replay that is not the same computation.

Nothing obliges a function to do the same twice. Where its replay saves other values, in number, shape or dtype, the
implementation says so instead of computing a wrong gradient.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, SHOULD, Profile, clause


@clause("DET-01", MUST, tests=Capability.DETERMINISM_CHECK, needs=(Fact.EAGER,), what=("shape", "dtype"))
def test_another_shape_or_dtype_in_the_replay_is_noticed(under_test, what):
    """A saved value that has another shape or dtype in the replay is an error.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = probe(x)
            if under_test.phase == "backward":
                y = ops.reshape(y, (1, 4)) if what == "shape" else ops.astype(y, "float32")
            return ops.sin(y)

        return checkpoint(region, x)

    def backward(pull):
        pull()  # where nothing is noticed, its value is that of another computation

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None, "a replay with other metadata passed unnoticed"


@clause("DET-02", MUST, tests=Capability.DETERMINISM_CHECK, needs=(Fact.EAGER,), determinism_check=("default", "none"))
def test_fewer_saved_values_in_the_replay_are_no_wrong_gradient(under_test, determinism_check):
    """Where a replay saves fewer values than forward, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe, found = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            return ops.multiply(y, 2.0) if under_test.phase == "backward" else ops.exp(ops.multiply(y, y))

        if determinism_check == "none":
            checkpoint = checkpoint.using(determinism_check="none")
        return checkpoint(region, x)

    def backward(pull):
        found.append(under_test.numpy(pull()[0]).tolist())

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None or found[-1] == found[0], "the gradient is that of another computation"


@clause("DET-03", MUST, tests=Capability.NO_DETERMINISM_CHECK, needs=(Fact.EAGER,))
def test_metadata_are_not_compared_on_request(under_test):
    """With `determinism_check="none"` a replay whose values have another shape, but the right numbers, is accepted.

    Source: torch.utils.checkpoint, `determinism_check`; allenai/OLMo-core#713.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            y = probe(x)
            return ops.sin(ops.reshape(y, (1, 4)) if under_test.phase == "backward" else y)

        return checkpoint.using(determinism_check="none")(region, x)

    under_test.run(program, under_test.array())


@clause("DET-04", MUST, tests=Capability.DETERMINISM_CHECK, needs=(Fact.EAGER,))
def test_a_cache_that_grows_with_each_execution_is_no_wrong_gradient(under_test):
    """Where a function appends to state that it captured, so that shapes change, the gradient is right or there is an
    error.

    Source: huggingface/transformers#28056; shihao1895/MemoryVLA#18.
    """
    ops, probe, found = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        cache = []

        def region(x):
            cache.append(ops.sin(probe(x)))
            return ops.sum(ops.exp(ops.concat(cache)))

        return checkpoint(region, x)

    def backward(pull):
        found.append(under_test.numpy(pull()[0]).tolist())

    seen = under_test.attempt(program, under_test.array(), backward=backward)

    assert seen.error is not None or found[-1] == found[0], "the gradient is that of another computation"


@clause(
    "DET-05",
    MAY,
    needs=(Fact.TORCH_NAMES, Fact.EAGER),
    profile=Profile.TORCH,
    what=("value", "strides", "gradient flag"),
)
def test_a_replay_that_differs_otherwise_passes_unnoticed(under_test, what):
    """A replay whose saved values differ in value, strides or need of a gradient alone is not noticed.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe, torch = under_test.ops, under_test.probe(), under_test.torch

    def program(checkpoint, x):
        def region(x):
            y = ops.cos(probe(x))
            if under_test.phase == "backward" and what == "value":
                y = ops.add(y, 1.0)
            if under_test.phase == "backward" and what == "strides":
                y = torch.clone(torch.t(torch.clone(torch.t(y))))
            if under_test.phase == "backward" and what == "gradient flag":
                y = y.detach().requires_grad_()
            return ops.exp(y)

        return checkpoint(region, x)

    def backward(pull):
        pull()

    seen = under_test.attempt(program, under_test.array(shape=(2, 3)), backward=backward)

    assert seen.error is None, "the difference was noticed"


@clause("DET-07", SHOULD, tests=Capability.DETERMINISM_CHECK, needs=(Fact.EAGER, Fact.GLOBAL_RANDOM))
def test_a_change_of_mode_before_backward_is_no_wrong_gradient(under_test):
    """Where a function computes something else since a mode was changed after forward, such as a dropout that was
    switched off, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `determinism_check`.
    """
    ops, probe, found, mode = under_test.ops, under_test.probe(), [], {}

    def program(checkpoint, x):
        mode["training"] = True

        def region(x):
            y = ops.sin(probe(x))
            return ops.exp(ops.dropout(y, 0.5) if mode["training"] else y)

        return checkpoint(region, x)

    def backward(pull):
        mode["training"] = False
        found.append(under_test.numpy(pull()[0]).tolist())

    seen = under_test.attempt(program, under_test.array(shape=(64,)), backward=backward)

    assert seen.error is not None or found[-1] == found[0], "the gradient is that of another computation"


@clause("DET-08", SHOULD, needs=(Fact.TORCH_NAMES, Fact.EAGER), profile=Profile.TORCH)
def test_a_parameter_that_is_frozen_before_backward_is_no_wrong_gradient(under_test):
    """Where a parameter stops needing a gradient after forward, the others' gradients are right or there is an error.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()
    parameters = []

    def program(checkpoint, x, w):
        parameters[:] = [w]
        return checkpoint(lambda x: ops.exp(ops.multiply(ops.sin(probe(x)), w)), x)

    def backward(pull):
        parameters[0].requires_grad_(False)
        return pull()

    under_test.attempt(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25), backward=backward)


@clause("DET-09", MUST, tests=(Capability.VALUE_CHECK, Capability.DETERMINISM_CHECK), needs=(Fact.EAGER,))
def test_other_values_in_the_replay_are_noticed_on_request(under_test):
    """With `determinism_check="values"`, a saved value that is another number in the replay is an error.

    Source: torch.utils.checkpoint, `determinism_check`, which compares metadata only.
    """
    ops, probe, scale = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        scale[:] = [2.0]
        region = lambda x: ops.exp(ops.cos(ops.multiply(probe(x), scale[0])))  # noqa: E731
        return checkpoint.using(determinism_check="values")(region, x)

    def unchanged(pull):
        pull()

    def changed(pull):
        scale[:] = [3.0]
        pull()

    under_test.run(program, under_test.array(), backward=unchanged)
    seen = under_test.attempt(program, under_test.array(), backward=changed)

    assert seen.error is not None, "a replay with other values passed unnoticed"
