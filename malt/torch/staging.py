"""Tensors on a GPU, by way of memory of the host that it reads and writes itself (pinned memory)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor


def is_far(tensor: Tensor) -> bool:
    """Return whether a tensor lies on a GPU. Local."""
    return tensor.device.type == "cuda"


def host_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros in memory of the host from which and to which a GPU copies while the host goes on. Local."""
    return torch.zeros(shape, dtype=dtype, pin_memory=True)


def finish(tensors: Iterable[Tensor]) -> None:
    """Wait until the copies to and from `tensors` are complete that have begun so far. Local."""
    for device in {one.device for one in tensors}:
        torch.cuda.current_stream(device).synchronize()


class Staging:
    """Memory of the host that stands for tensors of a GPU, by name. Local."""

    def __init__(self) -> None:
        self._far: dict[str, Tensor] = {}
        self._stands: dict[str, Tensor] = {}

    def fetch(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The tensors in memory of the host, by name: themselves, or copies of what a GPU's hold. Complete on return.

        The memory is the same at each call: shapes and dtypes are.
        """
        self._far = {name: one.detach() for name, one in tensors.items() if is_far(one)}
        for name, one in self._far.items():
            if name not in self._stands:
                self._stands[name] = host_zeros(one.shape, one.dtype)
            self._stands[name].copy_(one, non_blocking=True)
        finish(self._far.values())
        return {name: self._stands[name] if name in self._far else one for name, one in tensors.items()}

    def push(self) -> None:
        """Copy to the GPU. Complete on return, as the memory of the host may change then."""
        for name, one in self._far.items():
            one.copy_(self._stands[name], non_blocking=True)
        finish(self._far.values())
