"""PyTorch: `malt.torch.Optimizer`, `Sampler`, and `state` for checkpoints. They need the extra `torch`."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    remedy = "malt.torch needs PyTorch: pip install '.[torch]' in the checkout"
    raise ModuleNotFoundError(remedy, name="torch") from None

from malt.torch.optimizer import Optimizer
from malt.torch.resuming import state
from malt.torch.sampler import Sampler

__all__ = ["Optimizer", "Sampler", "state"]
