"""Paths of the files that say in a library's words what clauses say. The files are read as text, never imported."""

from __future__ import annotations

import pathlib

FOLDER = pathlib.Path(__file__).parent

TORCH = str(FOLDER / "torch.py")
TORCH_BACKWARD = str(FOLDER / "torch_backward.py")
TORCH_WRAPPER = str(FOLDER / "torch_wrapper.py")
TENSORPLAY = str(FOLDER / "tensorplay.py")
JAX = str(FOLDER / "jax.py")
