"""Gradients that are sent as one message: those of some parameters of one dtype."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from malt.session.vectors.vector import vector
from malt.torch.staging import is_far
from vol import AVG, GatherFunction
from vol.merging.merge import Blend, Own, Updates

LEAST_NBYTES = 1 << 16
"""The fewest bytes of a message, where there are as many: a small one costs as much time."""
_MOST_OF_A_DTYPE = 8
_BITS = {torch.float64: torch.int64, torch.float32: torch.int32}
"""The dtypes that gradients are sent in, each with one of as many bits."""
Named = tuple[str, Tensor]


class Bucket:
    """The gradients of `some` parameters in a vector of `dtype`, and so many `notes` of the rank. Collective.

    The vector ends in a number for each parameter, and the notes. The former are the part of the ranks that have a
    gradient of it: where none has one it stays None, so that an optimizer passes over it.
    """

    def __init__(self, some: Sequence[Named], dtype: torch.dtype, notes: int, name: str) -> None:
        array = np.zeros(sum(one.numel() + 1 for _, one in some) + notes, _numpy(dtype))
        self.vector = vector(array, graph="all", sync="bsp", name=name)
        self.parameters = [one for _, one in some]
        self._names = [name for name, _ in some]
        ends = np.cumsum([one.numel() for one in self.parameters])
        flat = torch.from_numpy(array)
        self._places = [
            flat[end - one.numel() : end].view(one.shape) for one, end in zip(self.parameters, ends, strict=True)
        ]
        self._has, self.notes = np.split(array[ends[-1] :], [len(some)])
        """What ranks have to say of a step, as numbers: by `gather`, the mean of those that take it."""
        self.is_near = not any(is_far(one) for one in self.parameters)
        """Whether all parameters are in memory of the host."""
        self.start()

    def start(self) -> None:
        """Begin a step: nothing is sent yet. Local."""
        self.is_sent = False
        """Whether it was sent at this step."""
        self._missing = set(range(len(self.parameters)))

    def check(self) -> None:
        """Check that gradients can be sent. Local. ValueError: one is sparse."""
        for name, one in zip(self._names, self.parameters, strict=True):
            if one.grad is not None and one.grad.layout != torch.strided:
                raise ValueError(f"{name} has a sparse gradient, which malt.torch does not average")

    def is_finite(self) -> bool:
        """Return whether the gradients that there are hold finite numbers alone. Local."""
        grads = [one.grad for one in self.parameters if one.grad is not None]
        return all(bool(grad.sum(dtype=torch.float64).isfinite()) for grad in grads)

    def drop(self) -> None:
        """Let go of all gradients. Local."""
        for one in self.parameters:
            one.grad = None

    def add(self, number: int) -> bool:
        """Copy the gradient of the parameter `number`; return whether all are here now, at this step. Local."""
        grad = self.parameters[number].grad
        if grad is None or grad.layout != torch.strided:
            return False
        self._copy(number, grad)
        self._missing.discard(number)
        return not self._missing

    def fill(self) -> None:
        """Copy all gradients. Local."""
        for number, one in enumerate(self.parameters):
            self._copy(number, one.grad)

    def is_current(self) -> bool:
        """Return whether it holds the gradients that there are now, all of them, bit by bit. Local."""
        return all(
            one.grad is not None and one.grad.layout == torch.strided and _are_same(place, one.grad.detach())
            for one, place in zip(self.parameters, self._places, strict=True)
        )

    def scatter(self) -> None:
        """Send it. One-sided."""
        self.is_sent = True
        self.vector.scatter()

    def gather(self, among: Collection[int] | None = None) -> tuple[int, ...]:
        """Replace it by the mean of those of this step; return the senders. Local. `among`: no others count."""
        function = AVG
        if among is not None:
            function = GatherFunction("the mean among some", newest=True, floating=True, begin=partial(_mean, among))
        return self.vector.gather(function).senders

    def write(self) -> None:
        """Replace the gradients by the means. Local."""
        for one, place, has in zip(self.parameters, self._places, self._has.tolist(), strict=True):
            if has:
                if one.grad is None:
                    one.grad = torch.empty_like(one)
                one.grad.detach().copy_(place)

    def _copy(self, number: int, grad: Tensor | None) -> None:
        self._has[number] = grad is not None
        if grad is None:
            self._places[number].zero_()
        else:
            self._places[number].copy_(grad.detach())


def buckets(parameters: Mapping[str, Tensor], name: str) -> list[Bucket]:
    """The buckets of all parameters, the last layers first, as a backward pass computes them. Collective.

    The last one has a note for each other one.
    """
    parts: list[tuple[torch.dtype, list[Named]]] = []
    for dtype in _BITS:
        is_wide = dtype == torch.float64
        some = [named for named in parameters.items() if (named[1].dtype == torch.float64) == is_wide]
        parts += [(dtype, part) for part in divided(some[::-1], dtype.itemsize)]
    notes = [0] * (len(parts) - 1) + [len(parts) - 1]
    return [
        Bucket(part, dtype, notes[number], f"{name}, gradients of {_numpy(dtype)}, {number + 1} of {len(parts)}")
        for number, (dtype, part) in enumerate(parts)
    ]


def divided(some: Sequence[Named], itemsize: int) -> list[list[Named]]:
    """Parameters in lists, in their order, of an eighth of all bytes or more; the last list may have less. Pure."""
    least = max(LEAST_NBYTES, itemsize * sum(one.numel() for _, one in some) // _MOST_OF_A_DTYPE)
    parts: list[list[Named]] = []
    nbytes = least
    for named in some:
        if nbytes >= least:
            parts.append([])
            nbytes = 0
        parts[-1].append(named)
        nbytes += itemsize * named[1].numel()
    return parts


def _mean(among: Collection[int], own: Own, updates: Updates) -> Blend | None:
    """As malt.AVG, of the updates of `among`."""
    some = [one for one in updates if one.sender in among]
    return AVG.begin(own, some) if some else None


def _are_same(place: Tensor, grad: Tensor) -> bool:
    """Return whether a gradient has these bits. NaN is compared, too."""
    bits = _BITS[place.dtype]
    return torch.equal(place.view(bits), grad.to(place.dtype).view(bits))


def _numpy(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
