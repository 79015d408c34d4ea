"""From `--adapter=NAME` to an adapter.

`find` runs in the controller and imports nothing of the library; `load` runs where the library may be imported.

NAME is one of: a name of ours or of the entry-point group `ckptspec.adapters`; `pkg.module:object`;
`path/file.py:object`; `dropin:MODULE`, MODULE dotted or a path that ends in .py.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import pathlib
import sys
from dataclasses import asdict, dataclass
from typing import Any

from ckptspec.conformance.backend import Adapter

ENTRY_POINTS = "ckptspec.adapters"
OURS = "_adapter.py"


class AdapterError(Exception):
    """An adapter can't be found or loaded; the message is one line: what was tried, and what is there."""


@dataclass(frozen=True)
class Source:
    """Where an adapter comes from, in words that can be sent to another process.

    asked: as on the command line. module, attribute: what to import.
    folder: what must be on sys.path, '' if nothing. is_dropin: the module is itself the implementation.
    sha256: of the file, if it is one given by path.
    """

    asked: str
    module: str
    attribute: str = "adapter"
    folder: str = ""
    is_dropin: bool = False
    sha256: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def names() -> dict[str, str]:
    """Every adapter that can be asked for by name -> `module:object`."""
    import ckptspec.adapters

    ours = {
        path.name.removesuffix(OURS).replace("_", "-"): f"ckptspec.adapters.{path.stem}:adapter"
        for folder in ckptspec.adapters.__path__
        for path in sorted(pathlib.Path(folder).glob("*" + OURS))
    }
    return {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)} | ours


def find(asked: str, directory: pathlib.Path) -> Source:
    """The source of the adapter asked for; paths are taken from `directory`. Raises AdapterError."""
    kind, _, target = asked.partition(":")
    if kind == "dropin":
        if not target:
            raise AdapterError("--adapter=dropin: names no module; write dropin:MODULE, dotted or a path ending in .py")
        return _source(asked, target, "", directory, is_dropin=True)
    if target:
        return _source(asked, kind, target, directory)
    known = names()
    if asked not in known:
        raise AdapterError(
            f"--adapter={asked}: no adapter of that name; there are: {', '.join(sorted(known))}"
            " (or pkg.module:object, path/file.py:object, dropin:MODULE)"
        )
    module, _, attribute = known[asked].partition(":")
    return Source(asked, module, attribute)


def _source(asked: str, module: str, attribute: str, directory: pathlib.Path, *, is_dropin: bool = False) -> Source:
    if not module.endswith(".py"):
        # As with `python -m`, a dotted name may also be found in the directory of invocation.
        return Source(asked, module, attribute, str(directory), is_dropin)
    path = (directory / module).resolve()
    if not path.is_file():
        raise AdapterError(f"--adapter={asked}: there is no file {path}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Source(asked, path.stem, attribute, str(path.parent), is_dropin, digest)


def load(source: Source) -> Adapter:
    """Import the adapter. Raises AdapterError."""
    if source.folder and source.folder not in sys.path:
        sys.path.insert(0, source.folder)
    try:
        module = importlib.import_module(source.module)
    except Exception as error:
        raise AdapterError(
            f"--adapter={source.asked}: importing {source.module} raises {type(error).__name__}: {_line(error)}"
        ) from error
    try:
        if source.is_dropin:
            from ckptspec.adapters.dropin import adapter_of

            version = getattr(module, "__version__", source.sha256[:12] or "unknown")
            return adapter_of(module, name=source.module, version=version)
        found = getattr(module, source.attribute)
    except Exception as error:
        raise AdapterError(f"--adapter={source.asked}: {_line(error)}") from error
    if not isinstance(found, Adapter):
        raise AdapterError(
            f"--adapter={source.asked}: {source.module}:{source.attribute} is no Adapter but {type(found).__name__}"
        )
    return found


def _line(error: BaseException) -> str:
    """An exception's message on one line."""
    return " ".join(str(error).split())[:400]
