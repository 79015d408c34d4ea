"""torch.utils.checkpoint, non-reentrant and reentrant."""

import torch.utils.checkpoint

from ckptspec.adapters.dropin import adapter_of

adapter = adapter_of(torch.utils.checkpoint, name="torch", version=torch.__version__)
