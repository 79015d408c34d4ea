"""ORD: order and scale.

Regions are replayed when backward reaches them, one after the other, so that what one recomputed is gone before the
next one starts. The order follows from the program alone, and there may be thousands.
"""

from ckptspec.conformance.backend import Fact
from ckptspec.conformance.clause import MUST, Profile, clause

EAGER = (Fact.EAGER,)


@clause("ORD-01", MUST, needs=EAGER)
def test_regions_are_replayed_last_one_first(under_test):
    """Regions in a chain are replayed in the order in which backward reaches them: the last one first.

    Source: torch.utils.checkpoint; TensorAuto/OpenTau#202.
    """
    ops, probe, replayed = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        replayed.clear()
        for number in range(4):

            def region(x, number=number):
                if under_test.phase == "backward":
                    replayed.append(number)
                return ops.exp(ops.sin(probe(x)))

            x = checkpoint(region, x)
        return x

    under_test.run(program, under_test.array(), replays=4)

    assert replayed == [3, 2, 1, 0], "regions were replayed in another order"


@clause("ORD-02", MUST, needs=EAGER)
def test_the_order_of_replays_is_the_same_on_each_run(under_test):
    """Two runs of one program replay its regions in the same order, also where several could be next.

    Source: ByteDance-Seed/VeOmni#979.
    """
    ops, probe, replayed = under_test.ops, under_test.probe(), []

    def program(checkpoint, x, w):
        replayed.append([])

        def region(name):
            def function(x):
                if under_test.phase == "backward":
                    replayed[-1].append(name)
                return ops.exp(ops.sin(probe(x)))

            return function

        branches = [checkpoint(region(f"{n} after"), checkpoint(region(f"{n}"), x if n % 2 else w)) for n in range(4)]
        return checkpoint(region("last"), ops.add(ops.add(branches[0], branches[1]), ops.add(branches[2], branches[3])))

    orders = []
    for _ in range(3):
        under_test.run(program, under_test.array(), under_test.array(0.5, -1.0, 2.0, 0.25), replays=9)
        orders.append(replayed[-1])

    assert orders[0] == orders[1] == orders[2], "the order of replays differs from run to run"


@clause("ORD-03", MUST, regions=("side by side", "in a chain"))
def test_a_program_may_have_thousands_of_regions(under_test, regions):
    """A program of 1500 regions, side by side or in a chain, has the plain values and gradients.

    Not promised: the last bits. Thousands of summands may be added in another order.
    Source: pytorch/pytorch#6959.
    """
    ops, probe = under_test.ops, under_test.probe()

    def region(x):
        return ops.sin(probe(x))

    def program(checkpoint, x):
        y = x
        for _ in range(1500):
            y = ops.add(y, checkpoint(region, x)) if regions == "side by side" else checkpoint(region, y)
        return y

    under_test.run(program, under_test.array(0.3, 0.7), replays=1500, tolerance=1e-12)


@clause("ORD-04", MUST, needs=(Fact.EAGER, Fact.TORCH_NAMES), profile=Profile.TORCH)
def test_a_region_is_replayed_after_the_gradients_of_later_ones(under_test):
    """A region is replayed once backward has passed all later regions, not before.

    Source: torch.utils.checkpoint; pytorch/pytorch#18566.
    """
    ops, probe, events = under_test.ops, under_test.probe(), []

    def program(checkpoint, x):
        events.clear()
        for number in range(3):

            def region(x, number=number):
                if under_test.phase == "backward":
                    events.append(f"replay {number}")
                return ops.exp(ops.sin(probe(x)))

            def passed(gradient, number=number):
                events.append(f"gradient {number}")

            x = ops.multiply(x, 2.0)
            x.register_hook(passed)  # called when backward has passed the region that follows
            x = checkpoint(region, x)
        return x

    under_test.run(program, under_test.array(), replays=3)

    order = ["replay 2", "gradient 2", "replay 1", "gradient 1", "replay 0", "gradient 0"]
    assert events == order, "a region was replayed before backward had passed the later ones"
