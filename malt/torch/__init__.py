"""PyTorch: `malt.torch.Optimizer` around any optimizer of torch. It needs the extra `torch`."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    remedy = "malt.torch needs PyTorch: pip install '.[torch]' in the checkout"
    raise ModuleNotFoundError(remedy, name="torch") from None

from malt.torch.optimizer import Optimizer

__all__ = ["Optimizer"]
