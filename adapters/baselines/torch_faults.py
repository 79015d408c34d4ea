"""The faults of torch.utils.checkpoint that torch.toml lists, each shown by a few lines with torch alone.

    python adapters/baselines/torch_faults.py                      # all of them
    python adapters/baselines/torch_faults.py STOP-10 MUT-03       # those of some clauses
    python adapters/baselines/torch_faults.py --plain              # the control: no checkpoint, so no fault

One line a fault says what was expected, what was observed, and whether the fault is there. Exit code: 1 if a fault that
was asked for is there, 0 if none is, 2 for any other trouble: an unknown id, an exception that is not the fault's own.

Left out are the entries that need an accelerator, a real or a simulated one (`devices = ["sim", "cuda"]` or `["sim"]`):
DEV-04, DEV-06, DEV-07, DEV-09, DEV-11 and DEV-12.

A fault's function is given a checkpoint and, where a clause has several, the case. It returns what is expected, mostly
from the same program without a checkpoint, and what is observed. `or_error` says that an error will do as well.
"""

from __future__ import annotations

import argparse
import functools
import gc
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.utils.checkpoint
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, set_checkpoint_early_stop

NON_REENTRANT, REENTRANT = "non-reentrant", "reentrant"
BOTH = (NON_REENTRANT, REENTRANT)
ERROR = "an error"
aten = torch.ops.aten

# These have no types, or not all.
checkpoint_sequential: Any = torch.utils.checkpoint.checkpoint_sequential
create_selective_checkpoint_contexts: Any = torch.utils.checkpoint.create_selective_checkpoint_contexts
dispatch_mode: Any = TorchDispatchMode
storage_reference: Any = StorageWeakRef


class Checkpoint(Protocol):
    """What a fault's function calls a region with: a form of checkpoint, or the control."""

    def __call__(self, region: Callable[..., Any], /, *args: Any, **options: Any) -> Any: ...

    def sequential(self, functions: list[Callable[[Tensor], Tensor]], segments: int, x: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Checkpointed:
    """torch.utils.checkpoint, in one of its forms."""

    use_reentrant: bool

    def __call__(self, region: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        return torch.utils.checkpoint.checkpoint(region, *args, use_reentrant=self.use_reentrant, **options)

    def sequential(self, functions: list[Callable[[Tensor], Tensor]], segments: int, x: Tensor) -> Tensor:
        y: Tensor = checkpoint_sequential(functions, segments, x, use_reentrant=self.use_reentrant)
        return y


class Plain:
    """The control: calls the function, and refuses the numbers of segments that the clause wants refused."""

    def __call__(self, region: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
        return region(*args, **{k: v for k, v in options.items() if k not in ("context_fn", "debug")})

    def sequential(self, functions: list[Callable[[Tensor], Tensor]], segments: int, x: Tensor) -> Tensor:
        if segments < 1:
            raise ValueError("the number of segments must be positive")
        return functools.reduce(lambda y, function: function(y), functions, x)


plain = Plain()
FORMS: dict[str, Checkpoint] = {NON_REENTRANT: Checkpointed(False), REENTRANT: Checkpointed(True)}

Outcome = tuple[object, object]
Program = Callable[[Checkpoint, Tensor], Tensor]


@dataclass(frozen=True)
class Fault:
    """One fault: a function for one form of checkpoint and one case of a clause."""

    clause: str
    variant: str
    case: str
    show: Callable[..., Outcome]
    or_error: bool

    @property
    def name(self) -> str:
        return f"{self.clause} {self.variant}" + (f", {self.case}" if self.case else "")

    def run(self, checkpoint: Checkpoint | None = None) -> tuple[bool, str]:
        """Whether the fault is there, and the line that says so."""
        arguments = (self.case,) if self.case else ()
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")
            expected, observed = self.show(checkpoint or FORMS[self.variant], *arguments)
        is_there = expected != observed and not (self.or_error and observed == ERROR)
        alternative = f" or {ERROR}" if self.or_error else ""
        end = "the fault is there" if is_there else "no fault"
        return is_there, f"{self.name}: expected {expected}{alternative}, observed {observed} -> {end}"


FAULTS: list[Fault] = []


def fault(
    clause: str, *variants: str, cases: Sequence[str] = ("",), or_error: bool = False
) -> Callable[[Callable[..., Outcome]], Callable[..., Outcome]]:
    """Lists a function as the fault of a clause, in these forms and cases."""

    def listed(show: Callable[..., Outcome]) -> Callable[..., Outcome]:
        FAULTS.extend(Fault(clause, variant, case, show, or_error) for variant in variants for case in cases)
        return show

    return listed


# -- what several of them need


def leaf() -> Tensor:
    return torch.tensor([0.5, 1.0], requires_grad=True)


def values(x: Tensor | None) -> list[float] | None:
    return None if x is None else [round(v, 4) for v in x.tolist()]


def gradient(program: Program, checkpoint: Checkpoint) -> list[float] | None:
    """The gradient of the program's sum, from the same state of the generator each time."""
    torch.manual_seed(1)
    x = leaf()
    torch.autograd.backward(program(checkpoint, x).sum())
    return values(x.grad)


def beside_plain(program: Program, checkpoint: Checkpoint) -> Outcome:
    return gradient(program, plain), gradient(program, checkpoint)


def gradient_or_error(program: Program, checkpoint: Checkpoint) -> object:
    try:
        return gradient(program, checkpoint)
    except RuntimeError:
        return ERROR


def saving(policy: object) -> Callable[[], Any]:
    return lambda: create_selective_checkpoint_contexts(policy)


class Counting(dispatch_mode):  # type: ignore[misc]
    """Counts how often an operation is executed."""

    def __init__(self, operation: object) -> None:
        super().__init__()
        self.operation, self.count = operation, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is self.operation
        return func(*args, **(kwargs or {}))


# -- wrong gradients, without an error


@fault("GRAD-05", REENTRANT)
def parameters_alone_get_no_gradient(checkpoint: Checkpoint) -> Outcome:
    data = torch.tensor([2.0, 3.0])

    def program(checkpoint: Checkpoint, w: Tensor) -> Tensor:
        y: Tensor = checkpoint(lambda data: (data * w).sin(), data)
        return y + w

    return beside_plain(program, checkpoint)


@fault("IO-06", REENTRANT, cases=("list", "dict"))
def results_in_a_container_are_cut_off(checkpoint: Checkpoint, case: str) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        in_list, in_dict = lambda x: [x.exp()], lambda x: {"y": x.exp()}
        y: Tensor = checkpoint(in_list, x)[0] if case == "list" else checkpoint(in_dict, x)["y"]
        return x + y

    return beside_plain(program, checkpoint)


@fault("HO-02", REENTRANT)
def the_second_order_is_lost(checkpoint: Checkpoint) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        checkpoint(lambda x: x**3, x).sum().backward(create_graph=True)
        slope, x.grad = x.grad, None
        assert slope is not None
        return slope + x  # the sum keeps the loss from being an error

    return beside_plain(program, checkpoint)


@fault("MEM-10", REENTRANT, cases=("nested",))
def arguments_in_a_list_get_no_gradient(checkpoint: Checkpoint, case: str) -> Outcome:
    return beside_plain(lambda checkpoint, x: x + checkpoint(lambda box: box[0].exp(), [x]), checkpoint)


@fault("RNG-14", NON_REENTRANT)
def a_saved_draw_shifts_the_later_ones(checkpoint: Checkpoint) -> Outcome:
    def region(x: Tensor) -> Tensor:
        first, second = torch.rand_like(x), torch.randn_like(x)
        return ((x * first).sin() * second).exp()

    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(region, x, context_fn=saving([aten.rand_like.default]))
        return y

    return beside_plain(program, checkpoint)


@fault("STOP-10", NON_REENTRANT)
def a_replay_ends_before_the_noise_is_there(checkpoint: Checkpoint) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        many = x.repeat(1000)
        y: Tensor = checkpoint(lambda x: torch.rrelu(-x, training=True), many)
        [torch.full_like(many, 7.0) for _ in range(8)]  # or the buffer's memory may by chance hold the right noise
        return y / 1000

    return beside_plain(program, checkpoint)


@fault("THREAD-03", *BOTH)
def what_another_thread_draws_shifts_a_draw(checkpoint: Checkpoint) -> Outcome:
    drawn: list[Tensor] = []

    def region(x: Tensor) -> Tensor:
        if not drawn:  # in forward; with a time limit, as a form may let the other region wait for this one
            other = threading.Thread(target=checkpoint, args=(lambda x: x * torch.rand_like(x), leaf()))
            other.start()
            other.join(0.3)
        drawn.append(torch.rand_like(x))
        return x * drawn[-1]

    observed = gradient(lambda checkpoint, x: checkpoint(region, x), checkpoint)
    return values(drawn[0]), observed


@fault("MUT-02", REENTRANT, cases=("constant",), or_error=True)
def a_constant_is_changed_twice(checkpoint: Checkpoint, case: str) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(lambda x, constant: (x * constant.add_(1.0)).sin(), x, torch.tensor([2.0, 3.0]))
        return y

    return gradient(program, plain), gradient_or_error(program, checkpoint)


@fault("MUT-03", NON_REENTRANT, cases=("as a keyword", "in a list", "in a dict"), or_error=True)
@fault("MUT-03", REENTRANT, cases=("in a list", "in a dict"), or_error=True)
def a_change_in_a_keyword_or_container_is_not_noticed(checkpoint: Checkpoint, case: str) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        other = torch.tensor([2.0, 3.0])
        y: Tensor
        if case == "as a keyword":
            y = checkpoint(lambda x, other: (x + other).sin(), x, other=other)
        elif case == "in a list":
            y = checkpoint(lambda x, others: (x + others[0]).sin(), x, [other])
        else:
            y = checkpoint(lambda x, others: (x + others["inside"]).sin(), x, {"inside": other})
        other.add_(1.0)
        return y

    return gradient(program, plain), gradient_or_error(program, checkpoint)  # a sum saves nothing: plain allows it


@fault("MUT-04", *BOTH, cases=("captured",), or_error=True)
def an_updated_parameter_is_not_noticed(checkpoint: Checkpoint, case: str) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor, step: float = 1.0) -> Tensor:
        w = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        y: Tensor = checkpoint(lambda x: (x * w).sin(), x)
        if step:
            w.detach().add_(step)
        return y

    return gradient(functools.partial(program, step=0.0), plain), gradient_or_error(program, checkpoint)


@fault("MUT-10", *BOTH, or_error=True)
def a_changed_capture_is_not_noticed(checkpoint: Checkpoint) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor, change: bool = True) -> Tensor:
        mask = torch.tensor([2.0, 3.0])
        y: Tensor = checkpoint(lambda x: (x * mask).sin(), x)
        if change:
            mask.zero_()
        return y

    return gradient(functools.partial(program, change=False), plain), gradient_or_error(program, checkpoint)


@fault("RETAIN-03", *BOTH, cases=("captured",), or_error=True)
def an_update_between_two_backwards_is_not_noticed(checkpoint: Checkpoint, case: str) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor, step: float = 1.0) -> Tensor:
        w = torch.nn.Parameter(torch.tensor([2.0, 3.0]))
        y: Tensor = checkpoint(lambda x: (x * w).sin(), x)
        torch.autograd.backward(y.sum(), retain_graph=True)
        x.grad = None
        if step:
            w.detach().add_(step)
        return y

    return gradient(functools.partial(program, step=0.0), plain), gradient_or_error(program, checkpoint)


@fault("MUT-05", NON_REENTRANT, cases=("before another",), or_error=True)
def an_overwritten_result_is_used(checkpoint: Checkpoint, case: str) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor, in_place: bool = True) -> Tensor:
        def region(x: Tensor) -> Tensor:
            y = x.exp()  # saves its result
            return (y.add_(1.0) if in_place else y.add(1.0)).sin()

        y: Tensor = checkpoint(region, x)
        return y

    return gradient(functools.partial(program, in_place=False), plain), gradient_or_error(program, checkpoint)


@fault("SEL-11", NON_REENTRANT, cases=("view", "select", "slice"), or_error=True)
def a_change_through_a_saved_view_is_lost(checkpoint: Checkpoint, case: str) -> Outcome:
    operation = {"view": aten.view.default, "select": aten.select.int, "slice": aten.slice.Tensor}[case]

    def region(x: Tensor) -> Tensor:
        y = x.sin()
        (y.view(2, 1) if case == "view" else y.select(0, 1) if case == "select" else y[1:2]).add_(1.0)
        return y.exp().sin()

    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(region, x, context_fn=saving([operation]))
        return y

    return gradient(program, plain), gradient_or_error(program, checkpoint)


# -- errors where there should be none, and none or others where there should be one


@fault("STOP-06", NON_REENTRANT)
def a_function_catches_the_end_of_its_replay(checkpoint: Checkpoint) -> Outcome:
    def region(x: Tensor) -> Tensor:
        y = x.sin()
        try:
            return y.exp() + 1.0
        except Exception:
            return (y * y).cos() + 1.0

    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(region, x)
        return y

    try:
        return beside_plain(program, checkpoint)
    except AssertionError:
        return gradient(program, plain), "an AssertionError"


@fault("ERR-01", NON_REENTRANT, cases=("StopIteration",))
def a_stop_iteration_is_turned_into_another_error(checkpoint: Checkpoint, case: str) -> Outcome:
    def region(x: Tensor) -> Tensor:
        raise StopIteration

    try:
        checkpoint(region, leaf())
    except (StopIteration, RuntimeError) as error:
        return "StopIteration", type(error).__name__
    return "StopIteration", "no error"


@fault("ERR-07", NON_REENTRANT)
def debug_breaks_the_second_backward(checkpoint: Checkpoint) -> Outcome:
    x = leaf()
    y = checkpoint(lambda x: x.sin().exp(), x, debug=True).sum()
    y.backward(retain_graph=True)
    first, x.grad = values(x.grad), None
    try:
        y.backward()
    except AttributeError:
        return first, "an AttributeError"
    return first, values(x.grad)


@fault("FUNC-06", NON_REENTRANT)
def a_region_under_vmap_fails_in_backward(checkpoint: Checkpoint) -> Outcome:
    def program(checkpoint: Checkpoint, x: Tensor) -> Tensor:
        y: Tensor = torch.func.vmap(lambda row: checkpoint(lambda row: row.sin().exp(), row))(x)
        return y

    expected, x = gradient(program, plain), leaf()
    try:
        y = program(checkpoint, x)
    except RuntimeError:
        return expected, expected  # refused where it is called, as the clause allows
    try:
        torch.autograd.backward(y.sum())
    except RuntimeError:
        return expected, "an error in backward"
    return expected, values(x.grad)


@fault("SEQ-04", *BOTH, cases=("0", "-1"))
def impossible_numbers_of_segments_are_no_value_error(checkpoint: Checkpoint, case: str) -> Outcome:
    try:
        checkpoint.sequential([torch.sin, torch.exp], int(case), leaf())
    except (ValueError, ZeroDivisionError) as error:
        return "ValueError", type(error).__name__
    return "ValueError", "no error"


@fault("SEQ-08", *BOTH)
def an_empty_sequence_is_an_error(checkpoint: Checkpoint) -> Outcome:
    x = leaf()
    try:
        return values(x), values(checkpoint.sequential([], 1, x))
    except ValueError:
        return values(x), "a ValueError"


@fault("SEL-17", NON_REENTRANT, cases=("None", "save", "7"))
def an_answer_that_means_nothing_is_accepted(checkpoint: Checkpoint, case: str) -> Outcome:
    answer, asked = {"None": None, "save": "save", "7": 7}[case], []

    def policy(context: object, operation: object, *args: object, **kwargs: object) -> object:
        asked.append(operation)
        return answer

    try:
        checkpoint(lambda x: x.exp(), leaf(), context_fn=saving(policy)).sum().backward()
    except (TypeError, ValueError):
        return "none accepted", "none accepted"
    return "none accepted", f"{len(asked)} accepted" if asked else "none accepted"


# -- too much executed, shown or held


@fault("STOP-12", NON_REENTRANT)
def another_threads_setting_holds(checkpoint: Checkpoint) -> Outcome:
    ends: list[str] = []
    results: list[Tensor] = []

    def region(x: Tensor) -> Tensor:
        y = x.exp().sin()
        ends.append("what follows the last saved value")
        return y + 1.0

    with set_checkpoint_early_stop(False):
        thread = threading.Thread(target=lambda: results.append(checkpoint(region, leaf())))
        thread.start()
        thread.join()
    torch.autograd.backward(results[0].sum())
    return "executed once", "executed once" if len(ends) == 1 else "executed again"


@fault("SEL-16", NON_REENTRANT, cases=("MUST_CPU_OFFLOAD", "PREFER_CPU_OFFLOAD"))
def an_offloaded_operation_is_executed_again(checkpoint: Checkpoint, case: str) -> Outcome:
    def executed(answer: CheckpointPolicy) -> str:
        def policy(context: object, operation: object, *args: object, **kwargs: object) -> CheckpointPolicy:
            return answer if operation is aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE

        y = checkpoint(lambda x: x.exp().sin().exp(), leaf(), context_fn=saving(policy))
        with Counting(aten.sin.default) as counting:
            torch.autograd.backward(y.sum())
        return f"{counting.count} executions in backward"

    return executed(CheckpointPolicy.MUST_SAVE), executed(CheckpointPolicy[case])


@fault("HOOK-02", NON_REENTRANT, cases=("keyword", "in a list", "twice"))
def hooks_are_not_shown_each_argument_once(checkpoint: Checkpoint, case: str) -> Outcome:
    shown, x, w = [], leaf(), torch.tensor([2.0, 3.0], requires_grad=True)

    def pack(saved: Tensor) -> Tensor:
        shown.append(values(saved))
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        if case == "keyword":
            checkpoint(lambda x, w: x.sin() * w.cos(), x, w=w)
        elif case == "in a list":
            checkpoint(lambda x, box: x.sin() * box[0].cos(), x, [w])
        else:
            checkpoint(lambda x, w, again: x.sin() * w.cos(), x, w, w)
    return "shown 1x", f"shown {shown.count(values(w))}x"


@fault("CTX-03", NON_REENTRANT, cases=("access",))
def the_default_device_of_forward_stays(checkpoint: Checkpoint, case: str) -> Outcome:
    torch.set_default_device("meta")
    try:
        y = checkpoint(lambda x: x.sin().exp(), leaf())
        y.grad_fn._saved_result  # noqa: B018 - asks for the replay
    finally:
        torch.set_default_device(None)
    observed = torch.empty(1).device.type
    if observed != "cpu":  # put it right for what comes next
        torch.device("cpu").__exit__(None, None, None)
    return "cpu", observed


@fault("MEM-05", NON_REENTRANT)
def recomputed_values_pile_up(checkpoint: Checkpoint) -> Outcome:
    made: list[Any] = []

    def region(x: Tensor) -> tuple[Tensor, Tensor]:
        z = x.tanh()
        made.append(storage_reference(z.untyped_storage()))
        return x.exp() * 2.0, z * 2.0

    held: list[int] = []
    y, _z = checkpoint(region, leaf())
    for _ in range(6):
        torch.autograd.backward(y.sum(), retain_graph=True)
        gc.collect()
        held.append(sum(not reference.expired() for reference in made))
    return "0 more held than after the first", f"{held[-1] - held[0]} more held than after the first"


@fault("MEM-10", NON_REENTRANT, cases=("keyword", "nested"))
def an_inner_regions_argument_is_held(checkpoint: Checkpoint, case: str) -> Outcome:
    def held(how: str) -> str:
        made: list[Any] = []

        def outer(x: Tensor) -> Tensor:
            h = x.exp()
            made.append(storage_reference(h.untyped_storage()))
            inner = lambda h=None, box=(): (box[0] if box else h).sin().exp()  # noqa: E731
            arguments: tuple[Any, ...] = {"argument": (h,), "keyword": (), "nested": (None, [h])}[how]
            y: Tensor = checkpoint(inner, *arguments, **({"h": h} if how == "keyword" else {}))
            return y

        y = checkpoint(outer, leaf())
        gc.collect()
        assert y.requires_grad  # alive until here, and with it what its graph holds
        return "released" if made[0].expired() else "held"

    return held("argument"), held(case)


# -- the command


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the faults that were asked for; the exit code."""
    parser = argparse.ArgumentParser(description="Shows the faults of torch.utils.checkpoint with torch alone.")
    parser.add_argument("ids", metavar="ID", nargs="*", help="a clause, such as STOP-10; without any, all")
    parser.add_argument("--plain", action="store_true", help="the control: call each function without checkpoint")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.ids) - {fault.clause for fault in FAULTS}:
        parser.error(f"no fault is listed for {', '.join(sorted(unknown))}")

    found, trouble = False, False
    for each in FAULTS:
        if asked.ids and each.clause not in asked.ids:
            continue
        try:
            is_there, line = each.run(plain if asked.plain else None)
        except Exception:
            trouble = True
            print(f"{each.name}: another exception than the fault's", flush=True)
            traceback.print_exc()
        else:
            found |= is_there
            print(line, flush=True)
    return 2 if trouble else int(found)


if __name__ == "__main__":
    sys.exit(main())
