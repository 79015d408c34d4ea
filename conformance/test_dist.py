"""DIST: several processes.

Replicas of a model, each in a process of its own, average their gradients while backward computes them. A replay comes
in the midst of this. It is not another forward of the replica, and it does not change in which order the processes talk
to each other.

What a clause says holds in each of two processes, whose data differ. Its plain run has the same replicas, which average
their gradients as well.
"""

from ckptspec.conformance.backend import Capability, Fact
from ckptspec.conformance.clause import MAY, MUST, Profile, clause

REPLICAS = (Fact.PROCESSES, Fact.TORCH_NAMES)


@clause("DIST-01", MUST, needs=REPLICAS, profile=Profile.DIST, regions=("one", "one a layer", "nested"))
def test_replicas_average_the_gradients_of_the_plain_run(under_test, regions):
    """In every process the averaged gradients of a model with regions are those of the model without.

    Source: torch.nn.parallel.DistributedDataParallel; facebookresearch/multimodal#406.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            def apply(layer, x):
                return checkpoint(lambda x: ops.sin(layer(probe(x))), x)

            class Model(torch.nn.Sequential):
                def forward(self, x):
                    first, second = self
                    if regions == "one":
                        return checkpoint(lambda x: ops.sin(second(ops.sin(first(probe(x))))), x)
                    if regions == "nested":
                        return checkpoint(lambda x: apply(second, ops.exp(apply(first, x))), x)
                    return apply(second, apply(first, x))

            replica = torch.nn.parallel.DistributedDataParallel(Model(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)))
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        x = under_test.array(dtype="float32", shape=(rank + 1, 4))
        return [g.tolist() for g in under_test.run(program, x, backward=backward).gradients]

    here, there = under_test.processes(2, body)

    assert here == there, "the processes have different averages"


@clause("DIST-02", MUST, tests=Capability.HOOKS_ONCE, needs=REPLICAS, profile=Profile.DIST)
def test_a_replicated_parameter_that_several_regions_read_is_ready_once(under_test):
    """A parameter that several regions of a replica read is ready, and averaged, once a backward.

    Not promised: anything where hooks fire once a region; DIST-09 and DIST-13 say what then is left.
    Source: torch.nn.parallel.DistributedDataParallel; facebookresearch/multimodal#404.
    """

    def body(under_test, rank):
        torch, ops, probe, kept, fired = under_test.torch, under_test.ops, under_test.probe(), [], []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    for _ in range(3):
                        x = checkpoint(lambda x: ops.sin(super(Model, self).forward(probe(x))), x)
                    return x

            fired.clear()
            replica = torch.nn.parallel.DistributedDataParallel(Model(4, 4))
            replica.module.weight.register_post_accumulate_grad_hook(fired.append)
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            under_test.noted(kept[1].sum().backward)

        def with_gradients(pull):
            backward(pull)
            return [p.grad for p in kept[0].parameters()]

        x = under_test.array(dtype="float32", shape=(rank + 1, 4))
        under_test.run(program, x, backward=backward)
        assert len(fired) == 1, "a hook of a parameter did not fire once"
        under_test.run(program, x, backward=with_gradients)

    under_test.processes(2, body)


@clause("DIST-03", MUST, needs=(*REPLICAS, Fact.EAGER), profile=Profile.DIST)
def test_regions_are_replayed_in_the_same_order_in_all_processes(under_test):
    """Processes that run the same program replay its regions in the same order, whatever their data.

    Source: torch.nn.parallel.DistributedDataParallel.
    """

    def body(under_test, rank):
        torch, ops, probe, kept, order = under_test.torch, under_test.ops, under_test.probe(), [], []

        def program(checkpoint, x):
            def apply(name, layer, x):
                def region(x):
                    if under_test.phase == "backward":
                        order.append(name)
                    return ops.sin(layer(probe(x)))

                return checkpoint(region, x)

            class Model(torch.nn.Sequential):
                def forward(self, x):
                    branches = [apply(name, layer, x) for name, layer in self.named_children()]
                    return apply("last", self[0], ops.exp(ops.concat(branches)))

            order.clear()
            model = Model(*(torch.nn.Linear(4, 4) for _ in range(4)))
            replica = torch.nn.parallel.DistributedDataParallel(model, static_graph=True)
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            under_test.noted(kept[1].sum().backward)

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)
        return order

    here, there = under_test.processes(2, body)

    assert len(here) == 5, "a region was not replayed, or more than once"
    assert here == there, "the processes replay in different orders"


@clause("DIST-04", MUST, needs=REPLICAS, profile=Profile.DIST)
def test_a_replica_can_be_trained_on(under_test):
    """Step after step a replica averages the gradients of the plain run: a replay is no forward to it.

    Source: pytorch/pytorch#70865.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    return checkpoint(lambda x: ops.sin(super(Model, self).forward(probe(x))), x)

            model = Model(4, 4)
            replica = torch.nn.parallel.DistributedDataParallel(model)
            for _ in range(3):
                kept[:] = [replica, replica(x)]
                if len(seen := [p.grad for p in model.parameters() if p.grad is not None]) < 0:
                    return seen
                under_test.noted(kept[1].sum().backward)
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)

    under_test.processes(2, body)


@clause("DIST-05", MUST, needs=REPLICAS, profile=Profile.DIST)
def test_gradients_can_be_added_up_before_they_are_averaged(under_test):
    """Steps of a replica that only add up its own gradients, and one that averages them, give those of the plain run.

    Source: torch.nn.parallel.DistributedDataParallel, `no_sync`.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    return checkpoint(lambda x: ops.sin(super(Model, self).forward(probe(x))), x)

            replica = torch.nn.parallel.DistributedDataParallel(Model(4, 4))
            with replica.no_sync():
                under_test.noted(replica(ops.exp(x)).sum().backward)
            alone = replica.module.weight.grad.clone()
            kept[:] = [replica, replica(x)]
            return kept[1], alone

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)

    under_test.processes(2, body)


@clause("DIST-06", MUST, tests=Capability.FORWARD_GRAPH, needs=REPLICAS, profile=Profile.DIST)
def test_a_replica_finds_the_parameters_that_no_region_uses(under_test):
    """A replica that looks for unused parameters finds those that neither a region nor the rest of the model uses.

    Source: torch.nn.parallel.DistributedDataParallel, `find_unused_parameters`.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Sequential):
                def forward(self, x):
                    return checkpoint(lambda x: ops.sin(self[0](probe(x))), x)

            model = Model(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
            replica = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)

    under_test.processes(2, body)


@clause("DIST-07", MUST, needs=(*REPLICAS, Fact.GLOBAL_RANDOM), profile=Profile.DIST)
def test_each_process_draws_again_what_it_drew(under_test):
    """Random operations of a replica's region draw in a replay what they drew in the forward of the same process.

    Source: torch.utils.checkpoint, `preserve_rng_state`.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    return checkpoint(lambda x: ops.exp(ops.dropout(super(Model, self).forward(probe(x)), 0.5)), x)

            model = Model(4, 64)
            for _ in range(rank):
                ops.uniform_like(x)
            replica = torch.nn.parallel.DistributedDataParallel(model)
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        seen = under_test.run(program, under_test.array(dtype="float32", shape=(4, 4)), backward=backward)
        return seen.value.tolist()

    here, there = under_test.processes(2, body)

    assert here != there, "the processes drew the same numbers"


@clause("DIST-08", MUST, needs=REPLICAS, profile=Profile.DIST)
def test_a_region_may_communicate(under_test):
    """A region in which the processes talk to each other does so again in its replay, and gives the plain gradients.

    Not promised: that the processes agree if they replay different regions.
    Source: torch.distributed.
    """

    def body(under_test, rank):
        torch, ops, probe, kept, sums = under_test.torch, under_test.ops, under_test.probe(), [], []

        def program(checkpoint, x):
            def region(x):
                total = under_test.stop_gradient(ops.sum(probe(x)))
                torch.distributed.all_reduce(total)
                sums.append(float(total))
                return ops.sin(ops.exp(ops.divide(x, total)))

            sums.clear()
            kept[:] = [checkpoint(region, checkpoint(region, x))]
            return kept[0]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), replays=2)
        return sums

    here, there = under_test.processes(2, body)

    assert len(here) == 4, "a replay did not communicate, or more than once"
    assert here == there, "the processes talked past each other"


@clause("DIST-09", MUST, needs=REPLICAS, profile=Profile.DIST)
def test_a_replica_of_a_fixed_graph_may_use_its_parameters_in_several_regions(under_test):
    """In a replica whose graph is announced not to change, several regions may read one parameter, in every form.

    Source: torch.nn.parallel.DistributedDataParallel, `static_graph`.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    for _ in range(3):
                        x = checkpoint(lambda x: ops.sin(super(Model, self).forward(probe(x))), x)
                    return x

            replica = torch.nn.parallel.DistributedDataParallel(Model(4, 4), static_graph=True)
            under_test.noted(replica(x).sum().backward)
            replica.zero_grad()
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)

    under_test.processes(2, body)


@clause("DIST-10", MUST, needs=REPLICAS, profile=Profile.DIST)
def test_gradients_are_averaged_once_a_backward(under_test):
    """The gradients of a replica with regions are sent to the other processes as often as those of the plain one.

    Source: torch.nn.parallel.DistributedDataParallel, `register_comm_hook`.
    """

    def body(under_test, rank):
        torch, ops, probe, kept, sent = under_test.torch, under_test.ops, under_test.probe(), [], []

        def program(checkpoint, x):
            class Model(torch.nn.Sequential):
                def forward(self, x):
                    for layer in self:
                        x = checkpoint(lambda x, layer=layer: ops.sin(layer(probe(x))), x)
                    return x

            def send(state, bucket):
                sent[-1] += 1
                work = torch.distributed.all_reduce(bucket.buffer(), async_op=True)
                return work.get_future().then(lambda done: done.value()[0])

            sent.append(0)
            replica = torch.nn.parallel.DistributedDataParallel(Model(*(torch.nn.Linear(4, 4) for _ in range(3))))
            replica.register_comm_hook(None, send)
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)
        return sent

    here, there = under_test.processes(2, body)

    assert here == there == [1] * 3, "gradients were sent more often, or less, than in the plain run"


@clause("DIST-11", MUST, needs=REPLICAS, profile=Profile.DIST)
def test_a_replica_inside_a_region_is_right_or_refused(under_test):
    """A region that calls a replica gives the gradients of the plain run, or raises.

    Source: pytorch/pytorch#70865; facebookresearch/fairscale#777.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            replica = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
            kept[:] = [replica, checkpoint(lambda x: ops.sin(replica(probe(x))), x)]
            return kept[1]

        def without(checkpoint, x):
            return checkpoint(lambda x: ops.sin(ops.exp(probe(x))), x)

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        x = under_test.array(dtype="float32", shape=(rank + 1, 4))
        seen = under_test.attempt(program, x, backward=backward)
        under_test.run(without, x)
        return seen.error is None

    here, there = under_test.processes(2, body)

    assert here == there, "one process was refused and the other was not"


@clause("DIST-12", MUST, needs=REPLICAS, profile=Profile.DIST, around=("the layers", "the model"))
def test_a_model_that_is_split_among_processes_can_be_checkpointed(under_test, around):
    """Regions of a model whose parameters are split among the processes give the gradients of the plain run.

    Source: torch.distributed.fsdp, `fully_shard`; huggingface/transformers#34928.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Sequential):
                def forward(self, x):
                    for layer in self:
                        x = checkpoint(lambda x, layer=layer: ops.sin(layer(probe(x))), x)
                    return x

            model = Model(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
            if around == "the layers":
                for layer in model:
                    torch.distributed.fsdp.fully_shard(layer)
            torch.distributed.fsdp.fully_shard(model)
            kept[:] = [model, model(x)]
            return kept[1]

        def backward(pull):
            model, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad.to_local() for p in model.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward, replays=2)

    under_test.processes(2, body)


@clause("DIST-13", MAY, tests=Capability.HOOKS_ONCE, needs=REPLICAS, profile=Profile.DIST)
def test_a_replica_averages_a_parameter_whose_hooks_fire_once_a_region(under_test):
    """A replica averages the whole gradient of a parameter that several regions read, its graph not being announced.

    Not promised: that it is refused where it is not right.
    Source: torch.nn.parallel.DistributedDataParallel, `static_graph`.
    """

    def body(under_test, rank):
        torch, ops, probe, kept = under_test.torch, under_test.ops, under_test.probe(), []

        def program(checkpoint, x):
            class Model(torch.nn.Linear):
                def forward(self, x):
                    for _ in range(3):
                        x = checkpoint(lambda x: ops.sin(super(Model, self).forward(probe(x))), x)
                    return x

            replica = torch.nn.parallel.DistributedDataParallel(Model(4, 4))
            kept[:] = [replica, replica(x)]
            return kept[1]

        def backward(pull):
            replica, y = kept
            under_test.noted(y.sum().backward)
            return [p.grad for p in replica.parameters()]

        under_test.run(program, under_test.array(dtype="float32", shape=(rank + 1, 4)), backward=backward)

    under_test.processes(2, body)
