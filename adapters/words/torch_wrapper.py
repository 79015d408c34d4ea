"""torch's words where a region is a module, which WRAP wraps."""

import functools

import torch
from torch.distributed._composable.checkpoint_activation import checkpoint as composable
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    CheckpointImpl,
    apply_activation_checkpointing,
    checkpoint_wrapper,
)

# An adapter says what these are.
WRAP = checkpoint_wrapper
FORM = {"checkpoint_impl": CheckpointImpl.REENTRANT}


class handles:
    wrapped = wrapped_by
    wrap_parts = wrap_parts_of


class Region(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def checkpoint(function, *args, **kwargs):
    region = torch.nn.Module()  # unless compiled_function
    region.forward = function.__call__  # unless compiled_function
    region = Region(function)  # if compiled_function
    options = {name: kwargs.pop(name) for name in OPTIONS & set(kwargs)}  # if OPTIONS
    return WRAP(region, **FORM, **options)(*args, **kwargs)  # if OPTIONS
    return WRAP(region, **FORM)(*args, **kwargs)  # unless OPTIONS


def wrapped_by(checkpoint, module, **options):
    return module if checkpoint is plainly else WRAP(module, **FORM, **options)


def wrap_parts_of(checkpoint, model, is_wanted):
    if checkpoint is not plainly:
        apply_activation_checkpointing(model, functools.partial(WRAP, **FORM), is_wanted)
