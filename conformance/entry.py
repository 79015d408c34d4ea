"""The installed pytest entry point: wakes the suite's plugin only when the command line asks for the suite.

In every other run, `--device` and the rest stay free for the user's own options. It waits until the initial conftest
files are loaded, so that the plugin can see an option that one of them has defined.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

PLUGIN = "ckptspec.conformance.plugin"


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> Generator[None, object, object]:
    result = yield
    if any(arg.startswith(("--adapter", "ckptspec.conformance")) for arg in args):
        early_config.pluginmanager.import_plugin(PLUGIN)
    return result
