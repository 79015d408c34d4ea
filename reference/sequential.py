"""A chain of functions, cut into segments of which each is a region."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ckptspec.reference.api import checkpoint


def checkpoint_sequential(
    functions: torch.nn.Sequential | Iterable[Callable[[Any], Any]],
    segments: int,
    input: Any,
    use_reentrant: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Run `functions` in order on `input`, as `segments` regions of floor(n / segments) functions each.

    The last segment takes the rest and is not checkpointed: its values are needed at once (SEQ-02). One segment, or no
    function, is a plain call. The only keyword is `preserve_rng_state`.

    Raises ValueError for fewer than one segment, more segments than functions, or another keyword; TypeError for more
    or fewer inputs than one. Source: torch.utils.checkpoint.checkpoint_sequential.
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: pass use_reentrant explicitly; False is recommended, True is the default as yet.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError(f"Unexpected keyword arguments: {', '.join(kwargs)}")  # SEQ-06
    chain = list(functions.children() if isinstance(functions, torch.nn.Sequential) else functions)
    if not chain:
        return input  # SEQ-08
    if not 1 <= segments <= len(chain):  # SEQ-04, LB-19
        raise ValueError(f"segments should be 1 to {len(chain)}, the number of functions, but got {segments}.")
    size = len(chain) // segments
    last = size * (segments - 1)
    for start in range(0, last, size):
        segment = _Segment(chain[start : start + size])
        input = checkpoint(segment, input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return _Segment(chain[last:])(input)


class _Segment:
    def __init__(self, functions: list[Callable[[Any], Any]]) -> None:
        self.functions = functions

    def __call__(self, value: Any) -> Any:
        for function in self.functions:
            value = function(value)
        return value
