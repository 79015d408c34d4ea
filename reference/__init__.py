"""Activation checkpointing for torch, complete and right: every public name of torch.utils.checkpoint 2.14.

Read in this order: `frame` (who keeps what alive, and the replay), `nonreentrant` and `reentrant` (the two forms),
`api` (the entry point); then what they use: `arguments`, `ambient`, `devices`, `determinism`, `settings`, `errors`;
then what stands beside: `selective`, `group`, `debug`, `sequential`. `engine` has all calls of private torch.

Comments such as `# STOP-10` name the clause of the specification that the line keeps; LB-nn is a fault of torch 2.13
that it avoids.
"""

from ckptspec.reference.api import checkpoint
from ckptspec.reference.devices import DefaultDeviceType, get_device_states, set_device_states
from ckptspec.reference.errors import CheckpointError
from ckptspec.reference.group import GraphExecGroup
from ckptspec.reference.reentrant import CheckpointFunction, check_backward_validity, detach_variable
from ckptspec.reference.selective import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)
from ckptspec.reference.sequential import checkpoint_sequential
from ckptspec.reference.settings import noop_context_fn, set_checkpoint_debug_enabled, set_checkpoint_early_stop

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "DefaultDeviceType",
    "GraphExecGroup",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]
