"""What is observed of one execution of a program: values, gradients, counts by phase, held bytes, an exception."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ckptspec.conformance.backend import Array, Host


class Probe:
    """A differentiable identity that counts its real executions."""

    def __init__(self, host: Host, name: str) -> None:
        self.name = name
        self.executions = 0
        self._probe = host.prober(self._executed)

    def __call__(self, x: Array) -> Array:
        return self._probe(x)

    def __repr__(self) -> str:
        return self.name

    def _executed(self) -> None:
        self.executions += 1


Counts = dict[Probe, int]


@dataclass
class Held:
    """Bytes that live arrays hold which were made in the run: outputs and copies of the primals included."""

    after_forward: int = 0
    after_backward: int = 0


@dataclass
class Observation:
    """One execution of a program. Values and gradients are NumPy arrays in the structure that the program returned."""

    value: Any = None
    gradients: Any = None
    forward: Counts = field(default_factory=dict)
    backward: Counts = field(default_factory=dict)
    held: Held = field(default_factory=Held)
    error: BaseException | None = None
    phase: str = "forward"


@dataclass
class Seen(Observation):
    """The checkpointed execution, with the plain one beside it."""

    plain: Observation = field(default_factory=Observation)

    @property
    def replays(self) -> int:
        """How often backward executed the most executed probe more than the plain backward did."""
        return max((n - self.plain.backward.get(p, 0) for p, n in self.backward.items()), default=0)
