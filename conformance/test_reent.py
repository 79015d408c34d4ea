"""REENT: what is peculiar to the reentrant form.

It runs forward without recording a graph, puts one node in the place of the whole region, and lets backward run the
region again and a backward inside of that. What follows from this is stated here: some of it is a limit, and a limit
is an error, never a wrong gradient.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, SHOULD, Profile, clause

REENTRANT = Capability.REENTRANT
TORCH = (Fact.TORCH_NAMES,)


@clause("REENT-01", MUST, tests=REENTRANT, needs=(Fact.EAGER, Fact.GRADIENT_FLAGS))
def test_forward_records_no_graph(under_test):
    """What a region computes in forward does not say that it needs a gradient; the region's result does.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, flags = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        def region(x):
            y = ops.sin(probe(x))
            if under_test.phase == "forward":
                flags.append(under_test.needs_gradient(y))
            return ops.exp(y)

        y = checkpoint(region, x)
        flags.append(under_test.needs_gradient(y))
        return y

    under_test.run(program, under_test.array())

    assert not flags[-2], "forward recorded a graph"
    assert flags[-1], "the result does not need a gradient"


@clause("REENT-02", MUST, needs=TORCH, profile=Profile.TORCH, by=("grad", "backward with inputs"))
def test_a_gradient_of_chosen_arrays_is_no_wrong_gradient(under_test, by):
    """Where the gradient of chosen arrays only is asked for through a region, it is right or there is an error.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#125155.
    """
    ops, probe, kept = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x, w):
        kept.update(x=x, w=w, y=checkpoint(lambda x: ops.exp(ops.sin(ops.multiply(probe(x), w))), x))
        return kept["y"]

    def chosen(pull):
        x, w, loss = kept["x"], kept["w"], ops.sum(kept["y"])
        if by == "grad":
            gradient = under_test.torch.autograd.grad(loss, [x])[0]
        else:
            under_test.torch.autograd.backward(loss, inputs=[x])
            gradient = x.grad
        return gradient, w.grad is None

    primals = under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25)
    under_test.run(program, *primals)
    under_test.attempt(program, *primals, backward=lambda pull: under_test.noted(chosen, pull))


@clause("REENT-03", MUST, tests=REENTRANT, needs=(Fact.HIGHER_ORDER,))
def test_gradients_that_do_not_pass_the_region_may_be_taken(under_test):
    """The program may take a gradient with respect to a region's result, which does not pass through the region.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        y = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
        return under_test.gradient(lambda y: ops.sin(ops.multiply(y, y)))(y)

    under_test.run(program, under_test.array())


@clause("REENT-04", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_refused_gradient_does_no_harm_to_a_later_backward(under_test):
    """After a gradient of chosen arrays through a region, refused or not, a backward over all gives the right gradient.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#37874.
    """
    ops, probe, kept = under_test.ops, under_test.probe(), {"refused": []}

    def program(checkpoint, x):
        kept["x"] = x
        kept["y"] = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
        return ops.multiply(kept["y"], 2.0)

    def backward(pull):
        try:
            under_test.torch.autograd.grad(kept["y"].sum(), [kept["x"]], retain_graph=True)
        except Exception as error:
            kept["refused"].append(type(error))
        return pull()

    under_test.run(program, under_test.array(), backward=backward)


@clause("REENT-05", MUST, tests=REENTRANT)
def test_a_replay_runs_the_region_to_its_end(under_test):
    """A replay executes the whole region, also what follows the last value that backward needs.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe, tail = under_test.ops, under_test.probe(), under_test.probe("tail")

    def program(checkpoint, x):
        return checkpoint(lambda x: tail(ops.add(ops.exp(ops.sin(probe(x))), 1.0)), x)

    seen = under_test.run(program, under_test.array())

    assert seen.backward[tail] == 1, "the replay ended before the region did"


@clause("REENT-06", MUST, tests=REENTRANT)
def test_a_region_without_a_differentiable_result_gives_no_wrong_gradient(under_test):
    """Where no result of a region depends differentiably on its arguments, the gradient is right or there is an error.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        y = checkpoint(lambda x: under_test.stop_gradient(ops.exp(ops.sin(x))), x)
        return ops.add(y, checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x))

    def with_replay(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    under_test.run(with_replay, under_test.array())
    under_test.attempt(program, under_test.array())


@clause("REENT-08", SHOULD, needs=TORCH, profile=Profile.TORCH, by=("grad", "backward with inputs"))
def test_a_refused_gradient_of_chosen_arrays_names_the_way_out(under_test, by):
    """Where a gradient of chosen arrays is refused, the message names the option that allows it, `use_reentrant`.

    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#125155.
    """
    ops, probe, kept = under_test.ops, under_test.probe(), {}

    def program(checkpoint, x):
        kept["x"] = x
        kept["y"] = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
        return kept["y"]

    def chosen(pull):
        if by == "grad":
            under_test.torch.autograd.grad(kept["y"].sum(), [kept["x"]])
        else:
            under_test.torch.autograd.backward(kept["y"].sum(), inputs=[kept["x"]])

    under_test.run(program, under_test.array())
    seen = under_test.attempt(program, under_test.array(), backward=lambda pull: under_test.noted(chosen, pull))

    assert seen.error is None or "use_reentrant" in str(seen.error), "the refusal names no way out"
