"""THREAD: threads.

Regions may be called, and backward be run, in several threads at the same time and in other threads than forward. Only
a random generator that the threads share sets a limit.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MUST, clause

THREADS = (Fact.THREADS,)


@clause("THREAD-01", MUST, needs=THREADS)
def test_regions_in_several_threads_are_independent(under_test):
    """Threads that each call and differentiate regions of their own, at the same time, get right gradients.

    Not promised: this for regions that draw random numbers from a generator which the threads share.
    Source: torch.utils.checkpoint.
    """
    ops, probe, held = under_test.ops, under_test.probe(), {}
    arrays = [under_test.array(*[0.1 * (i + j) for j in range(64)]) for i in range(8)]

    def program(checkpoint, x):
        held["checkpoint"] = checkpoint
        return checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)

    def backward(pull):
        def chain(x):
            for _ in range(8):
                x = held["checkpoint"](lambda x: ops.exp(ops.sin(ops.cos(probe(x)))), x)
            return x

        return pull(), under_test.in_threads(*(lambda x=x: under_test.differentiate(chain, x) for x in arrays))

    under_test.run(program, under_test.array(), backward=backward)


@clause("THREAD-02", MUST, needs=(*THREADS, Fact.RETAIN))
def test_several_threads_may_differentiate_one_graph(under_test):
    """Threads that run backward over the same graph at the same time, which keeps it, all get right gradients.

    Source: pytorch/pytorch#96764.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        for _ in range(8):
            x = checkpoint(lambda x: ops.exp(ops.sin(ops.cos(probe(x)))), x)
        return x

    def backward(pull):
        return [under_test.in_threads(*[lambda: pull(retain=True)] * 4) for _ in range(5)]

    under_test.run(program, under_test.array(shape=(64,)), backward=backward)


@clause(
    "THREAD-03",
    MUST,
    tests=Capability.EXCLUSIVE_RANDOM,
    needs=(*THREADS, Fact.GLOBAL_RANDOM, Fact.EAGER, Fact.SEPARATE_OUTPUTS),
)
def test_random_regions_in_several_threads_draw_what_they_drew(under_test):
    """With `preserve_rng_state="exclusive"`, regions that draw random numbers in several threads at the same time draw
    in their replays what they drew in forward.

    Not promised: which of them draws first; nor this for draws outside of such regions.
    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """
    ops, probe, inside, drawn, draws = under_test.ops, under_test.probe(), {}, {}, {}

    def program(checkpoint, x):
        inside["flag"], drawn["flag"] = under_test.flag(), under_test.flag()
        draws.clear()

        def slow(x):
            inside["flag"].set()
            if under_test.phase == "forward":
                drawn["flag"].wait(0.3)  # in vain, if the other region has to wait
            return random(x, "slow")

        def quick(x):
            y = random(x, "quick")
            drawn["flag"].set()
            return y

        def random(x, name):
            noise = ops.uniform_like(x)
            draws.setdefault(name, noise)
            return ops.multiply(ops.sin(probe(x)), noise)

        def after(x):
            inside["flag"].wait(10)
            return checkpoint(quick, x)

        # The sine of zero: whatever is drawn, the values are zero, and the gradient is what was drawn.
        checkpoint = checkpoint.using(preserve_rng_state="exclusive")
        return under_test.in_threads(lambda: checkpoint(slow, x), lambda: after(x))

    def backward(pull):
        found = pull(outputs=[0])[0], pull(outputs=[1])[0]
        return [ops.subtract(gradient, draws[name]) for gradient, name in zip(found, ("slow", "quick"), strict=True)]

    under_test.run(program, under_test.array(*[0.0] * 64), backward=backward)


@clause("THREAD-04", MUST, needs=THREADS)
def test_backward_may_run_in_another_thread_than_forward(under_test):
    """Backward may be called from another thread than forward.

    Source: torch.utils.checkpoint.
    """
    ops, probe = under_test.ops, under_test.probe()

    def program(checkpoint, x):
        x = checkpoint(lambda x: ops.exp(ops.sin(probe(x))), x)
        return checkpoint(lambda x: ops.tanh(ops.cos(probe(x))), x)

    def backward(pull):
        return under_test.in_threads(pull)

    under_test.run(program, under_test.array(), backward=backward)
