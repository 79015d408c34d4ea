"""Before the first clause: load the adapter in a process of its own and see that its host works.

The controller learns here what the adapter offers; it never imports the library itself.
"""

from __future__ import annotations

import json
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from typing import Any

import numpy as np

from ckptspec.conformance.backend import Fact, Host, HostError, MissingFact, NotWritten
from ckptspec.conformance.running.resolve import AdapterError, Source, load

NAME = re.compile(r"\w[\w.+ -]*", re.ASCII)
"""Of a variant: it is a part of the names of cases."""

TIMEOUT = 180
"""Seconds that loading a library and one gradient may take."""


def describe(source: Source, device: str) -> dict[str, Any]:
    """What the adapter offers on this device, found in a child process. Raises AdapterError, one line."""
    with tempfile.TemporaryDirectory() as folder:
        answer = pathlib.Path(folder) / "answer.json"
        program = bootstrap() + (
            "from ckptspec.conformance.running.preflight import _main\n"
            f"_main({json.dumps(source.to_json())!r}, {device!r}, {str(answer)!r})"
        )
        where = f"--adapter={source.asked}"
        try:
            child = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired:
            raise AdapterError(f"{where}: loading it and one gradient took over {TIMEOUT} s") from None
        if not answer.exists():
            last = (child.stderr.decode(errors="replace").strip().splitlines() or ["no output"])[-1]
            raise AdapterError(f"{where}: the process that loads it ended with code {child.returncode}: {last}")
        found: dict[str, Any] = json.loads(answer.read_text())
    if "error" in found:
        raise AdapterError(found["error"])
    return found


def bootstrap() -> str:
    """Python source that makes `ckptspec` in a child process the same package as in this one."""
    package = sys.modules["ckptspec"]
    if package.__spec__ is not None:
        return ""
    return (
        "import sys, types\n"
        "sys.modules['ckptspec'] = types.ModuleType('ckptspec')\n"
        f"sys.modules['ckptspec'].__path__ = {list(package.__path__)!r}\n"
    )


def check(host: Host) -> None:
    """Raise HostError unless the host can make an array, differentiate and count."""
    values = np.array([0.5, 2.0])
    executions = []
    try:
        step = "making an array"
        array = host.array(values)
        if not np.array_equal(host.numpy(array), values):
            raise HostError(f"{host.name}: an array of [0.5, 2.0] reads back as {host.numpy(array)}")
        step = "differentiating x * x with a probe on x"

        def square(x: Any) -> tuple[Any]:
            x = host.probe(x, lambda: executions.append(1))
            return (host.ops.multiply(x, x),)

        (output,), pullback = host.vjp(square, array)
        (gradient,) = pullback([host.ones_like(output)], False)
        host.settle()
        gradient = host.numpy(gradient)
    except NotWritten:
        return  # the cases say so
    except MissingFact as error:
        raise HostError(str(error)) from error
    except HostError:
        raise
    except Exception as error:
        raise HostError(f"{host.name}: {step} raises {type(error).__name__}: {' '.join(str(error).split())}") from error
    if not np.array_equal(gradient, 2 * values):
        raise HostError(f"{host.name}: the gradient of x * x at [0.5, 2.0] is {gradient}")
    if len(executions) != 1:
        raise HostError(f"{host.name}: a probe that was executed once counts {len(executions)}")


def _main(source_json: str, device: str, answer: str) -> None:
    """The child: writes the description, or the error, to the file `answer`."""
    source = Source(**json.loads(source_json))
    try:
        adapter = load(source)
        for name in adapter.variants:
            if not NAME.fullmatch(name):
                raise HostError(
                    f"{adapter.name}: a variant can't be named {name!r}; letters, digits and _.+- can be in it"
                )
        hosts = [adapter.host(device) for _ in adapter.variants]
        if not hosts:
            raise HostError(f"{adapter.name} has no variants")
        checkpointers = [make(host) for host, make in zip(hosts, adapter.variants.values(), strict=True)]
        check(hosts[0])
        found: dict[str, Any] = {
            "name": adapter.name,
            "version": adapter.version,
            "host": {
                "name": hosts[0].name,
                "version": hosts[0].version,
                "facts": [f.name for f in Fact if f in hosts[0].facts],
            },
            "variants": {
                name: sorted(c.name for c in checkpointer.capabilities)
                for name, checkpointer in zip(adapter.variants, checkpointers, strict=True)
            },
            "words": {
                name: checkpointer.words and asdict(checkpointer.words)
                for name, checkpointer in zip(adapter.variants, checkpointers, strict=True)
            },
            "environment": {
                "python": platform.python_version(),
                "machine": f"{platform.system()} {platform.machine()}",
                "numpy": np.__version__,
            }
            | hosts[0].environment(),
        }
    except AdapterError as error:
        found = {"error": str(error)}
    except Exception as error:
        text = " ".join(str(error).split())
        cause = text if isinstance(error, HostError) else f"{type(error).__name__}: {text}"
        found = {"error": f"--adapter={source.asked}: {cause}"}
    pathlib.Path(answer).write_text(json.dumps(found))
