"""tensorplay.utils.checkpoint, non-reentrant and reentrant: torch 2.14's names over TensorPlay's tensors."""

import tensorplay
import tensorplay.utils.checkpoint

from ckptspec.adapters.hosts.tensorplay_host import OPERATORS, TensorPlayHost
from ckptspec.adapters.torch_names import adapter_of
from ckptspec.conformance.backend import Capability

adapter = adapter_of(
    tensorplay.utils.checkpoint,
    name="tensorplay",
    version=tensorplay.__version__,
    host=TensorPlayHost,
    operators=OPERATORS,
    also=frozenset({Capability.KEYWORDS}),  # its reentrant form takes keywords too
)
