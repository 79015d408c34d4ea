"""HO: gradients of higher order.

A gradient is itself a program that can be differentiated, and the replays inside it are part of it. A form that cannot
do that says so: a second order that is dropped silently is a wrong answer.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, Profile, clause

HIGHER_ORDER = (Fact.HIGHER_ORDER,)
TORCH = (Fact.HIGHER_ORDER, Fact.TORCH_NAMES)


@clause(
    "HO-01", MUST, tests=Capability.HIGHER_ORDER, needs=HIGHER_ORDER, order=(2, 3), regions=("one", "chain", "nested")
)
def test_gradients_of_gradients_equal_the_plain_run(under_test, order, regions):
    """Gradients of gradients through regions are those of the plain call, to the third order, also of captured arrays.

    Not promised: the last bits. The terms of a sum may be added in another order, as they come from other nodes.
    Source: torch.utils.checkpoint, `use_reentrant`; Oneflow-Inc/oneflow#9053; pytorch/pytorch#102223.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x, w):
        def region(x):
            return ops.exp(ops.sin(ops.multiply(probe(x), w)))

        def loss(x):
            if regions == "nested":
                return checkpoint(lambda x: ops.sin(checkpoint(region, ops.cos(x))), x)
            y = checkpoint(region, x)
            return checkpoint(lambda y: ops.sin(ops.exp(y)), y) if regions == "chain" else y

        for _ in range(order - 1):
            loss = under_test.gradient(loss)
        return loss(x)

    primals = under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25)
    under_test.run(program, *primals, tolerance=1e-12)


@clause("HO-02", MUST, needs=TORCH, profile=Profile.TORCH)
def test_a_backward_that_creates_a_graph_drops_no_second_order(under_test):
    """After `backward(create_graph=True)` through a region the gradient's gradient is right or there is an error.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def first_order(checkpoint, x):
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def program(checkpoint, x):
        y = first_order(checkpoint, x)
        under_test.noted(under_test.torch.autograd.backward, y.sum(), create_graph=True)
        slope, x.grad = x.grad, None
        # The sum keeps a second order that is lost from being an error.
        return ops.add(slope, x)

    under_test.run(first_order, under_test.array())
    under_test.attempt(program, under_test.array())


@clause("HO-03", MUST, tests=Capability.HIGHER_ORDER, needs=TORCH, profile=Profile.TORCH)
def test_a_hessian_equals_the_plain_one(under_test):
    """The functional Hessian of a region is the plain one, and can itself be differentiated.

    Source: torch.utils.checkpoint, `use_reentrant`.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def loss(x):
            return checkpoint(lambda x: ops.sum(ops.exp(ops.sin(ops.multiply(probe(x), ops.sum(x))))), x)

        return under_test.noted(under_test.torch.autograd.functional.hessian, loss, x, create_graph=True)

    under_test.run(program, under_test.array())


@clause("HO-04", MUST, tests=(Capability.HIGHER_ORDER, Capability.GRADIENT_INSIDE), needs=HIGHER_ORDER)
def test_a_gradient_inside_a_region_may_be_differentiated_twice(under_test):
    """A region that takes a gradient inside itself can be differentiated to the second order.

    Not promised: the last bits. The terms of a sum may be added in another order, as they come from other nodes.
    Source: torch.utils.checkpoint, `use_reentrant`; pytorch/pytorch#90105.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        def region(x):
            slope = under_test.gradient(lambda x: ops.exp(ops.sin(x)))(x)
            return ops.sin(ops.multiply(slope, ops.cos(probe(x))))

        return under_test.gradient(lambda x: checkpoint(region, x))(x)

    under_test.run(program, under_test.array(), tolerance=1e-12)
