"""How many drawn programs are tried a second: prints a table and writes it to README.md in this folder.

Three things side by side, on the same programs: drawing alone (hypothesis, the text, its compilation, the arrays); with
a checkpoint that is a plain call, so that each program runs plain three times; and the whole, with an implementation.
Their rounds are interleaved in one process; times are medians of the rounds, in CPU time of the one thread that
computes.

Run: python benchmarks/fuzz_speed.py [--programs N] [--rounds N]
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import platform
import statistics
import sys
import time
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
if "ckptspec" not in sys.modules and importlib.util.find_spec("ckptspec") is None:  # a checkout without an install
    package = types.ModuleType("ckptspec")
    package.__path__ = [str(HERE.parent)]
    sys.modules["ckptspec"] = package
from ckptspec.adapters import reference_adapter, torch_adapter  # noqa: E402
from ckptspec.conformance.backend import Checkpointer  # noqa: E402
from ckptspec.conformance.explore import Exploration  # noqa: E402
from ckptspec.conformance.under_test import UnderTest, collected  # noqa: E402

HEADING = "# What drawn programs cost"
AT_LEAST = 150
"""Programs a second that we ask of the whole."""

#: What is drawn, as clauses of the FUZZ chapter ask for it.
ASKED: dict[str, dict[str, Any]] = {
    "pure operations": {},
    "random operations": {"random": True, "ways": ("between draws",)},
    "options": {"options": ("early_stop", "preserve_rng_state", "determinism_check")},
    "two backwards": {"ways": ("twice",)},
    "policies": {"policies": "functions"},
}

HOST = torch_adapter.adapter.host("cpu")
TORCH = torch_adapter.adapter.variants["non-reentrant"](HOST)
OURS = reference_adapter.adapter.variants["non-reentrant"](HOST)
PLAIN = dataclasses.replace(
    TORCH,
    checkpoint=lambda region, args, kwargs, options: region(*args, **kwargs),
    decorator=TORCH.decorator and (lambda options: lambda region: region),
)


def explore(checkpointer: Checkpointer, asked: dict[str, Any], count: int, *, is_run: bool = True) -> list[str]:
    """Draw programs, and run them or not. Returns their texts."""
    under_test, texts = UnderTest(HOST, checkpointer, Exploration(count)), list[str]()

    def check(program: Any, primals: Any, drawn: Any) -> None:
        texts.append(drawn.text)
        if is_run:
            under_test.run(program, *primals, replays=0, tolerance=drawn.tolerance, backward=drawn.backward)

    with collected():
        under_test.explore(check, **asked)
    return texts


def measure(asked: dict[str, Any], count: int, rounds: int) -> list[str]:
    """A row of the table: how large programs are, and how many a second."""
    parts: dict[str, Callable[[], list[str]]] = {
        "drawing": functools.partial(explore, TORCH, asked, count, is_run=False),
        "plain": functools.partial(explore, PLAIN, asked, count),
        "torch": functools.partial(explore, TORCH, asked, count),
        "reference": functools.partial(explore, OURS, asked, count),
    }
    seconds: dict[str, list[float]] = {name: [] for name in parts}
    sizes: list[int] = []
    for _ in range(rounds + 1):
        for name, part in parts.items():
            start = time.thread_time()
            texts = part()
            seconds[name].append((time.thread_time() - start) / len(texts))
            sizes += [text.count("ops.") for text in texts]
    medians = {name: statistics.median(found[1:]) for name, found in seconds.items()}  # the first round warms up
    return [f"{statistics.mean(sizes):.0f}", *(f"{1 / medians[name]:.0f}" for name in parts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [[name, *measure(asked, chosen.programs, chosen.rounds)] for name, asked in ASKED.items()]
    head = ["programs with", "operations", "drawn", "and run plain", "and checkpointed: torch", "ours"]
    text = "\n".join([
        HEADING,
        "",
        "Written by `python benchmarks/fuzz_speed.py`, which says what is measured and how. Programs a second, on one",
        f"core; medians of {chosen.rounds} rounds of {chosen.programs} programs, torch {torch.__version__}, Python"
        f" {platform.python_version()}. We ask for {AT_LEAST} at least.",
        "",
        "| " + " | ".join(head) + " |",
        "|---" + "|---:" * (len(head) - 1) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ])  # fmt: skip
    readme = HERE / "README.md"
    before, _, _ = readme.read_text().partition(HEADING)
    readme.write_text(before.rstrip("\n") + "\n\n" + text)
    print(text)


if __name__ == "__main__":
    main()
