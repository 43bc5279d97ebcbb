"""PyTorch: `malt.torch.Optimizer` around any optimizer of torch, `state` for checkpoints. It needs the extra `torch`."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("malt.torch needs PyTorch: pip install 'malt[torch]'", name="torch") from None

from malt.torch.optimizer import Optimizer
from malt.torch.resuming import state

__all__ = ["Optimizer", "state"]
