"""PyTorch: `malt.torch.Optimizer`, `Sampler`, `alone`, and `state` for checkpoints. They need the extra `torch`.

`malt.torch.hf` and `malt.torch.lightning` are imported at their first use.
"""

from importlib import import_module
from typing import Any

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    remedy = "malt.torch needs PyTorch: pip install '.[torch]' in the checkout"
    raise ModuleNotFoundError(remedy, name="torch") from None

from malt.torch.optimizer import Optimizer
from malt.torch.process_groups import alone
from malt.torch.resuming import state
from malt.torch.sampler import Sampler

__all__ = ["Optimizer", "Sampler", "alone", "state"]

_FRAMEWORKS = ("hf", "lightning")
"""Modules that need an extra of their own."""


def __getattr__(name: str) -> Any:
    if name in _FRAMEWORKS:
        return import_module(f"malt.torch.{name}")
    raise AttributeError(f"module 'malt.torch' has no attribute {name!r}")
