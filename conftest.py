"""Lets a checkout run without an install: `ckptspec` is then this folder.

An install (editable or wheel) has the same names, so every module has one identity either way.
"""

import importlib.util
import pathlib
import sys
import types


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("ckptspec.conformance") is not None
    except ModuleNotFoundError:
        return False


if not _is_installed():
    _checkout = types.ModuleType("ckptspec")
    _checkout.__path__ = [str(pathlib.Path(__file__).parent)]
    sys.modules["ckptspec"] = _checkout

pytest_plugins = ["ckptspec.conformance.plugin"]
