"""Tensors on a GPU, by way of memory of the host that it reads and writes itself (pinned memory)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

Wait = Callable[[], object]


def is_far(tensor: Tensor) -> bool:
    """Whether a tensor lies on a GPU. Local."""
    return tensor.device.type == "cuda"


def host_zeros(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Zeros in memory of the host from which and to which a GPU copies while the host goes on. Local."""
    return torch.zeros(shape, dtype=dtype, pin_memory=True)


def begun(tensors: Iterable[Tensor]) -> list[Wait]:
    """Functions that wait until the copies to and from `tensors` are complete that have begun so far. Local."""
    waits: list[Wait] = []
    for device in {one.device for one in tensors if is_far(one)}:
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(device))
        waits.append(event.synchronize)
    return waits


def finish(waits: Iterable[Wait]) -> None:
    """Wait for all of `begun`. Local."""
    for wait in waits:
        wait()


class Staging:
    """Tensors by name, and for each of a GPU one of the host that stands for it. Local."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._far = {name: one.detach() for name, one in tensors.items() if is_far(one)}
        self.near = tensors | {name: host_zeros(one.shape, one.dtype) for name, one in self._far.items()}
        """All of them in memory of the host. A tensor that is there stands for itself."""

    def fetch(self) -> None:
        """Copy from the GPU. Complete on return."""
        for name, one in self._far.items():
            self.near[name].copy_(one, non_blocking=True)
        finish(begun(self._far.values()))

    def push(self) -> None:
        """Copy to the GPU. Complete on return, as the memory of the host may change then."""
        for name, one in self._far.items():
            one.copy_(self.near[name], non_blocking=True)
        finish(begun(self._far.values()))
