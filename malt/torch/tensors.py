"""Tensors as arrays: their own memory where that is possible, else copies of float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from dstorm import Transport
from malt.session.replica.parameters import checksum
from malt.torch.staging import Staging, is_far
from vol.update import Array

_WHOLE = (torch.float32, torch.float64)
"""The dtypes of arrays that are exchanged."""
_BY_ROWS, _BY_COLUMNS = ("crow_indices", "col_indices", "values"), ("ccol_indices", "row_indices", "values")
_SPARSE = {
    torch.sparse_coo: ("_indices", "_values"), torch.sparse_csr: _BY_ROWS, torch.sparse_csc: _BY_COLUMNS,
    torch.sparse_bsr: _BY_ROWS, torch.sparse_bsc: _BY_COLUMNS,
}  # fmt: skip
"""The methods of a sparse tensor, by its layout, that return the dense tensors in which it is stored."""


class Tensors:
    """Tensors by name, as arrays that are read and written in place. Local.

    look_up() returns them: the same names, shapes and dtypes each time, but the tensors may be others.

    A contiguous tensor is its array's memory: nothing is copied. Tensors of fewer bits than float32 have copies of
    float32, which keep what they round off: a mean of models, or a small change, has more digits than they have.
    Tensors on a GPU are copied to pinned memory and back.
    """

    def __init__(self, look_up: Callable[[], Mapping[str, Tensor]]) -> None:
        self._look_up = look_up
        self._staging = Staging()
        self._near: dict[str, Tensor] = {}
        self._copies: dict[str, Tensor] = {}
        """The copies that arrays are, of this lookup and of former ones."""
        self._copied: list[str] = []
        """The names of those of this lookup."""

    def arrays(self) -> dict[str, Array]:
        """The arrays by name, with what the tensors hold now. Where the tensors are the same, so is the memory."""
        self._near = self._staging.fetch(self._look_up())
        self._copied = [name for name, one in self._near.items() if one.dtype not in _WHOLE or not one.is_contiguous()]
        for name in self._copied:
            self._copy(name, self._near[name].detach())
        if self._copied:
            self._staging.push()
        return {name: array_of(self._held(name)) for name in self._near}

    def write(self) -> None:
        """Write the arrays that are copies into their tensors. Without that a GPU's tensors do not change."""
        for name in self._copied:
            self._near[name].detach().copy_(self._copies[name])
        self._staging.push()

    def apart(self) -> dict[str, Tensor]:
        """The tensors that there are now, by name, whose memory is not that of their arrays. Not copies.

        They may be ahead of these.
        """
        now, near = self._look_up(), self._near
        return {name: one for name, one in now.items() if name in self._copied or near.get(name) is not one}

    def _copy(self, name: str, tensor: Tensor) -> None:
        """Bring the copy of a tensor up to date."""
        copy = self._copies.get(name)
        if copy is None:
            dtype = tensor.dtype if tensor.dtype in _WHOLE else torch.float32
            self._copies[name] = tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
        elif tensor.dtype == copy.dtype:
            copy.copy_(tensor)
        else:
            now = tensor.to(copy.dtype)
            changed = copy + (now - copy.to(tensor.dtype).to(copy.dtype))  # by what the loop has changed
            copy.copy_(torch.where(changed.isfinite(), changed, now))
            tensor.copy_(copy)  # so that a second call finds no change

    def _held(self, name: str) -> Tensor:
        return self._copies[name] if name in self._copied else self._near[name]


def array_of(tensor: Tensor) -> Array:
    """The memory of a tensor as an array, not a copy. Local."""
    array: Array = tensor.detach().numpy()
    return array


def dense_of(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """The dense tensors that hold the values of `tensor`, by name: itself, or the parts of a sparse one. Local."""
    names = _SPARSE.get(tensor.layout)
    if names is None:
        return {name: tensor}
    return {f"{name}.{part.lstrip('_')}": getattr(tensor.detach(), part)() for part in names}


def broadcast(transport: Transport, tensor: Tensor, root: int | None = None) -> None:
    """Give a dense tensor of any dtype the bytes that it has on rank `root`; None: on the lowest one. Collective."""
    found = packed(tensor)
    transport.broadcast(found, root)
    unpack(found, tensor)


def packed(tensor: Tensor) -> Array:
    """The bytes of the values of a dense tensor: a copy. Local."""
    return _bytes(tensor.detach().cpu().contiguous()).copy()


def unpack(found: Array, tensor: Tensor) -> None:
    """Give a dense tensor the values whose bytes `packed` has returned. Local."""
    near = torch.empty_like(tensor, device="cpu", memory_format=torch.contiguous_format, requires_grad=False)
    _bytes(near)[:] = found
    tensor.detach().copy_(near)


def sum_of(tensor: Tensor) -> int:
    """The checksum of the values of a dense tensor. Local."""
    return checksum(_bytes(tensor.detach().cpu().contiguous()))


def check(name: str, tensor: Tensor) -> None:
    """Check that a dense tensor can be exchanged, or copied from rank to rank. TypeError, ValueError: it cannot."""
    if torch.nn.parameter.is_lazy(tensor):
        raise ValueError(f"{name} has no shape yet: show the model an example first")
    if tensor.device.type != "cpu" and not is_far(tensor):
        raise TypeError(f"{name} is on the device {tensor.device}: malt.torch exchanges tensors on CPU and CUDA")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise TypeError(f"{name} is of {tensor.dtype}, {tensor.layout}: malt.torch exchanges dense and sparse tensors")
    if any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)):
        raise ValueError(f"{name} has elements that share memory, as expand() makes them: give the model its clone()")


def _bytes(tensor: Tensor) -> Array:
    return array_of(tensor.reshape(-1).view(torch.uint8))
