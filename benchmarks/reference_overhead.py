"""What checkpointing costs, ours beside torch's: prints a table and writes it to README.md in this folder.

The limit is what no implementation can beat: a plain forward and backward, and one more forward. *Overhead* is what a
checkpointed step takes above the limit. All variants of a case run interleaved in one process, round after round; times
are medians of the rounds, in CPU time of the one thread that computes: a busy machine disturbs that least.

Run: python benchmarks/reference_overhead.py [--rounds N]
"""

from __future__ import annotations

import argparse
import functools
import gc
import importlib.util
import platform
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.utils.checkpoint as theirs
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

HERE = Path(__file__).parent
if "ckptspec" not in sys.modules and importlib.util.find_spec("ckptspec") is None:  # a checkout without an install
    package = types.ModuleType("ckptspec")
    package.__path__ = [str(HERE.parent)]
    sys.modules["ckptspec"] = package
import ckptspec.reference as ours  # noqa: E402

aten = torch.ops.aten
Call = Callable[..., Any]


class Case(NamedTuple):
    """One workload: `build(call)` returns the forward, in which `call` checkpoints the regions (or just calls them)."""

    name: str
    build: Callable[[Any], Callable[[Tensor], Tensor]]
    x: Tensor
    target: float  # the most that ours may cost, as a share of torch's overhead
    options: Callable[[Any], dict[str, Any]] = lambda library: {"use_reentrant": False}
    repeat: int = 1


def body(w: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.nn.functional.gelu(x @ w).sin().cos()


def chain(n: int, w: Tensor) -> Callable[[Call], Callable[[Tensor], Tensor]]:
    def build(call: Call) -> Callable[[Tensor], Tensor]:
        def forward(x: Tensor) -> Tensor:
            for _ in range(n):
                x = call(body(w), x)
            return x

        return forward

    return build


def nested(depth: int) -> Callable[[Call], Callable[[Tensor], Tensor]]:
    def build(call: Call) -> Callable[[Tensor], Tensor]:
        def level(d: int, x: Tensor) -> Tensor:
            return x.sin() if d == 0 else call(lambda x: level(d - 1, x), x).cos()

        return lambda x: level(depth, x)

    return build


def fifty(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(10):
        x = ((x @ w).sin() * 1.5).cos() + x
    return x


def cases() -> Iterable[Case]:
    torch.manual_seed(0)
    w = (torch.randn(64, 64) / 8).requires_grad_()
    x = torch.randn(64, 64, requires_grad=True)
    yield Case("tiny region (64x64 matmul, gelu, sin, cos)", chain(1, w), x, 0.5, repeat=10)
    yield Case("chain of 100 tiny regions", chain(100, w), x, 0.5)
    yield Case("nested, depth 10", nested(10), x, 0.6, repeat=2)
    block = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True)
    yield Case("transformer block (d=256, 128 tokens)", lambda call: lambda x: call(block, x),
               torch.randn(1, 128, 256, requires_grad=True), 1.0)  # fmt: skip
    yield Case("selective policy over 50 ops", lambda call: lambda x: call(lambda x: fifty(x, w), x), x, 0.5,
               lambda library: {"use_reentrant": False, "context_fn": functools.partial(
                   library.create_selective_checkpoint_contexts, [aten.mm.default])}, repeat=2)  # fmt: skip
    yield Case("reentrant form, tiny region", chain(1, w), x, 0.8, lambda library: {"use_reentrant": True}, repeat=10)
    layers = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(32)])
    sequential = lambda call: lambda x: layers(x) if call is plain else call.sequential(layers, 8, x)  # noqa: E731
    yield Case("checkpoint_sequential, 32 layers in 8 segments", sequential, x, 1.0)


def plain(function: Call, *args: Any) -> Any:
    return function(*args)


class Caller:
    """`checkpoint` of one library with the options of a case."""

    def __init__(self, library: Any, options: dict[str, Any]) -> None:
        self.library, self.options = library, options

    def __call__(self, function: Call, *args: Any) -> Any:
        return self.library.checkpoint(function, *args, **self.options)

    def sequential(self, layers: torch.nn.Sequential, segments: int, x: Tensor) -> Any:
        return self.library.checkpoint_sequential(layers, segments, x, use_reentrant=False)


def decorated(options: dict[str, Any]) -> Call:
    decorate = ours.checkpoint(**options)
    return lambda function, *args: decorate(function)(*args)


def step(forward: Callable[[Tensor], Tensor], x: Tensor, backward: bool = True) -> None:
    out = forward(x)
    if backward:
        out.backward(torch.ones_like(out))


def measure(steps: dict[str, Callable[[], None]], rounds: int, repeat: int) -> dict[str, float]:
    """Median seconds of each step, interleaved: a disturbance hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for run in steps.values():
        run()
    gc.collect()
    gc.disable()
    for _ in range(rounds):
        for name, run in steps.items():
            start = time.thread_time()
            for _ in range(repeat):
                run()
            times[name].append((time.thread_time() - start) / repeat)
    gc.enable()
    return {name: statistics.median(values) for name, values in times.items()}


class Overhead(NamedTuple):
    limit: float
    of: dict[str, float]  # by variant; seconds above the limit


def overhead(case: Case, variants: dict[str, Call], rounds: int) -> Overhead:
    free = case.build(plain)
    steps = {"forward": lambda: step(free, case.x, backward=False), "both": lambda: step(free, case.x)}
    for name, call in variants.items():
        steps[name] = functools.partial(step, case.build(call), case.x)
    seconds = measure(steps, rounds, case.repeat)
    limit = seconds["forward"] + seconds["both"]
    return Overhead(limit, {name: seconds[name] - limit for name in variants})


class Bytes(TorchDispatchMode):
    """Bytes in storages that operations made and that are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[StorageWeakRef, int] = {}
        self.peak = 0

    def alive(self) -> int:
        self.seen = {ref: size for ref, size in self.seen.items() if not ref.expired()}
        return sum(self.seen.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self.seen[StorageWeakRef(tensor.untyped_storage())] = tensor.untyped_storage().nbytes()
        self.peak = max(self.peak, self.alive())
        return out


def bytes_of(forward: Callable[[Tensor], Tensor], x: Tensor) -> tuple[int, int]:
    """Held after the forward, and at the peak of the backward; without gc."""
    gc.collect()
    gc.disable()
    with Bytes() as count:
        out = forward(x)
        held, count.peak = count.alive(), 0
        out.sum().backward()
    gc.enable()
    return held, count.peak


def table(title: str, head: list[str], rows: list[list[str]]) -> str:
    lines = [f"## {title}", "", "| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows), ""])


def us(seconds: float) -> str:
    return f"{seconds * 1e6:.1f}"


def compare(rounds: int) -> tuple[str, str]:
    times, sizes = [], []
    for case in cases():
        libraries = {"ours": ours, "torch": theirs}
        variants: dict[str, Call] = {name: Caller(lib, case.options(lib)) for name, lib in libraries.items()}
        if case.name.startswith("tiny"):
            variants["decorator"] = decorated(case.options(ours))
        result = overhead(case, variants, rounds)
        rows = {"ours": case.name, "decorator": "decorator form, tiny region"}
        for variant, name in rows.items():
            if variant in result.of:
                a, b = result.of[variant], result.of["torch"]
                target = case.target if variant == "ours" else 1.0
                times.append([name, us(result.limit), us(a), us(b), f"{a / b:.2f}", f"{target:.1f}"])
                print("  ", *times[-1], flush=True)
        held = {name: bytes_of(case.build(variants[name]), case.x) for name in ("ours", "torch")}
        free = bytes_of(case.build(plain), case.x)
        sizes.append([case.name, *(f"{v:,}" for i in (0, 1) for v in (free[i], held["ours"][i], held["torch"][i]))])
    head = ["case", "limit, us", "ours above it", "torch above it", "ours / torch", "at most"]
    columns = ["plain", "ours", "torch"]
    head_of_sizes = ["case", *(f"held: {c}" for c in columns), *(f"peak: {c}" for c in columns)]
    return table("Overhead above the limit", head, times), table("Bytes in storages", head_of_sizes, sizes)


def growth(rounds: int) -> str:
    rows = []
    w = (torch.randn(8, 8) / 8).requires_grad_()
    x = torch.randn(8, 8, requires_grad=True)
    for n in (10, 100, 1000):
        case = Case(f"{n}", chain(n, w), x, 1.0)
        variants = {name: Caller(lib, {"use_reentrant": False}) for name, lib in (("ours", ours), ("torch", theirs))}
        result = overhead(case, variants, max(5, rounds * 10 // n))
        rows.append([case.name, *(us(result.of[name] / n) for name in variants)])
        print("  ", *rows[-1], flush=True)
    return table("Growth: overhead per region in a chain of n", ["n", "ours, us", "torch, us"], rows)


def explicit(rounds: int) -> str:
    """What options cost that are off by default, and what some of the defaults cost."""
    options: dict[str, dict[str, Any]] = {
        "defaults": {},
        "preserve_rng_state=False": {"preserve_rng_state": False},
        'preserve_rng_state="exclusive"': {"preserve_rng_state": "exclusive"},
        'determinism_check="none"': {"determinism_check": "none"},
        'determinism_check="values"': {"determinism_check": "values"},
        "early_stop=False": {"early_stop": False},
        "debug=True": {"debug": True},
    }
    case = next(iter(cases()))
    result = overhead(case, {k: Caller(ours, {"use_reentrant": False, **o}) for k, o in options.items()}, rounds // 2)
    rows = [[f"`{name}`", us(seconds)] for name, seconds in result.of.items()]
    return table("Options, on the tiny region", ["option", "above the limit, us"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    times, sizes = compare(rounds)
    text = "\n".join([
        "# What the reference costs",
        "",
        "Written by `python benchmarks/reference_overhead.py`, which says what is measured and how.",
        f"CPU time of one thread, medians of {rounds} rounds, torch {torch.__version__}, "
        f"Python {platform.python_version()}.",
        "`ours / torch` is the share of torch.utils.checkpoint's overhead; `at most` is what we allow ourselves.",
        "",
        times,
        "Made by operations and alive after the forward, and at the peak of backward. Not counted, for either: the",
        "generator's state of each region, and beside each saved random operator (5 kB on the CPU).",
        "",
        sizes,
        growth(rounds),
        explicit(rounds),
    ])  # fmt: skip
    _, heading, others = (HERE / "README.md").read_text().partition("# What drawn programs cost")  # by fuzz_speed.py
    (HERE / "README.md").write_text(f"{text}\n{heading}{others}" if heading else text)
    print(text)


if __name__ == "__main__":
    main()
