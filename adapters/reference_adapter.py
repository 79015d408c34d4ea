"""The reference implementation, non-reentrant and reentrant."""

import torch

import ckptspec.reference
from ckptspec.adapters.dropin import adapter_of

adapter = adapter_of(ckptspec.reference, name="reference", version=f"on torch {torch.__version__}")
