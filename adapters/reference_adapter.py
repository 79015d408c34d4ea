"""The reference implementation, non-reentrant and reentrant."""

import torch

import ckptspec.reference
from ckptspec.adapters.dropin import adapter_of
from ckptspec.conformance.backend import Capability

adapter = adapter_of(
    ckptspec.reference,
    name="reference",
    version=f"on torch {torch.__version__}",
    also=frozenset({Capability.EXCLUSIVE_RANDOM, Capability.VALUE_CHECK}),
)
