"""Faults that drawn programs find; most such faults stand in the file of the chapter whose clause they break too."""

from __future__ import annotations

from typing import Any

import pytest

from ckptspec.conformance.backend import Checkpointer, Region
from ckptspec.witnesses.witness import witness, wrapping


@witness("FUZZ-06")
def a_policy_turns_preservation_off(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region with a policy is replayed without the generator's state."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        return checkpoint(region, args, kwargs, options | ({"preserve_rng_state": False} if "save" in options else {}))

    return wrapping(checkpointer, call)


@witness("FUZZ-09", "FUZZ-16")
def a_policy_cuts_off_the_second_argument(patch: pytest.MonkeyPatch, checkpointer: Checkpointer) -> Checkpointer:
    """A region with a policy gives its second argument no gradient."""

    def call(checkpoint: Any, region: Region, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
        if "save" in options and len(args) > 1:
            args = args[0], args[1].detach(), *args[2:]
        return checkpoint(region, args, kwargs, options)

    return wrapping(checkpointer, call)
