"""mylib, for the suite: a checkpoint function over torch tensors.

It runs as it stands, on torch's own function, which is in the place of yours until step 1 is done:

    ckptspec run --adapter=mylib_adapter.py:adapter

A module that has torch.utils.checkpoint's names needs no adapter: `ckptspec run --adapter=dropin:mylib.checkpoint`. An
adapter translates: it never judges, retries or repairs. The whole contract is in ckptspec/conformance/backend.py.
"""

from __future__ import annotations

from typing import Any

import torch

# 1. The function under test, and the version of what it belongs to.
from torch.utils.checkpoint import checkpoint as implementation

from ckptspec.adapters.hosts.torch_host import TorchHost
from ckptspec.conformance.backend import Adapter, Capability, Checkpointer, Region, only

VERSION = f"not written yet, torch's own {torch.__version__}"

# 2. How it is called. The suite's options come under the names that Checkpointer's docstring lists (`early_stop`,
# `determinism_check`, `preserve_rng_state`, `save`, `policy`, …). Put them into your function's words; `only` refuses,
# by name, those that are not listed here.


def checkpoint(region: Region, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]) -> Any:
    """Call the region checkpointed."""
    only(options, "preserve_rng_state")
    return implementation(region, *args, use_reentrant=False, **options, **kwargs)


# 3. What it offers beyond the core. Take the mark from a line once you saw it work. Without one, a clause about it may
# be refused, but never be answered with a wrong value; with it, the clause must hold.
CAPABILITIES = frozenset[Capability](
    [
        # <capabilities>
    ]
)


def checkpointer(host: TorchHost) -> Checkpointer:
    # 4. If gradients come from `.backward()` alone, as those of a reentrant function do: host.uses_backward = True.
    # Checkpointer also takes a decorator, a sequence, a group, a wrapper of modules.
    return Checkpointer(checkpoint, CAPABILITIES)


# A second form of the function is a second variant, and a column of its own in the reports.
adapter = Adapter("mylib", VERSION, TorchHost, {"mylib": checkpointer})
