"""Tensors as arrays: their own memory where that is possible, else copies of float32."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from malt.torch.staging import Staging, is_far
from vol.update import Array

_HALVES = (torch.float16, torch.bfloat16)


class Tensors:
    """Tensors by name, as arrays that are read and written in place. Local.

    A contiguous tensor is its array's memory: nothing is copied. Tensors of float16 and bfloat16 have copies of
    float32, which keep what they round off: a mean of models, or a small change, has more digits than they have.
    Tensors on a GPU are copied to pinned memory and back.

    TypeError, ValueError: a tensor cannot be exchanged.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            _check(name, tensor)
        self._staging = Staging(dict(tensors))
        self._staging.fetch()
        self._tensors = self._staging.near
        self._copies = {
            name: tensor.detach().to(_dtype(tensor), copy=True, memory_format=torch.contiguous_format)
            for name, tensor in self._tensors.items()
            if tensor.dtype in _HALVES or not tensor.is_contiguous()
        }

    def arrays(self) -> dict[str, Array]:
        """The arrays by name, with what the tensors hold now. The same memory at each call."""
        self._staging.fetch()
        for name, copy in self._copies.items():
            tensor = self._tensors[name].detach()
            if tensor.dtype == copy.dtype:
                copy.copy_(tensor)
            else:
                copy += tensor.to(copy.dtype) - copy.to(tensor.dtype).to(copy.dtype)  # what the loop has changed
                tensor.copy_(copy)  # so that a second call finds no change
        if self._copies:
            self._staging.push()
        return {name: array_of(self._copies.get(name, tensor)) for name, tensor in self._tensors.items()}

    def write(self) -> None:
        """Write the arrays that are copies into their tensors. Without that a GPU's tensors do not change."""
        for name, copy in self._copies.items():
            self._tensors[name].detach().copy_(copy)
        self._staging.push()


def array_of(tensor: Tensor) -> Array:
    """The memory of a tensor as an array, not a copy. Local."""
    array: Array = tensor.detach().numpy()
    return array


def _dtype(tensor: Tensor) -> torch.dtype:
    return torch.float32 if tensor.dtype in _HALVES else tensor.dtype


def _check(name: str, tensor: Tensor) -> None:
    if torch.nn.parameter.is_lazy(tensor):
        raise ValueError(f"{name} has no shape yet: show the model an example first")
    if tensor.device.type != "cpu" and not is_far(tensor):
        raise TypeError(f"{name} is on the device {tensor.device}: malt.torch exchanges tensors of the CPU and of CUDA")
    if tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise TypeError(
            f"{name} is of {tensor.dtype}, {tensor.layout}: malt.torch exchanges dense tensors of real numbers"
        )
