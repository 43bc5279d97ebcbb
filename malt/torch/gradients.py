"""Gradients that all ranks average before each step of their optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from malt.session.vectors import vector
from vol import AVG, Vector


class Gradients:
    """The gradients of `parameters`, by name, one vector for each dtype that they are sent in. Collective.

    Each vector ends in a number for each parameter: the part of the ranks that have a gradient of it. Where none has
    one, it stays None, so that an optimizer passes over it.
    """

    def __init__(self, parameters: Mapping[str, Tensor], name: str) -> None:
        self.parts: list[tuple[Vector, Tensor, Sequence[tuple[str, Tensor]]]] = []
        for dtype in (torch.float32, torch.float64):
            some = [
                (key, one)
                for key, one in parameters.items()
                if (one.dtype == torch.float64) == (dtype == torch.float64)
            ]
            if some:
                array = np.zeros(sum(one.numel() + 1 for _, one in some), str(dtype).removeprefix("torch."))
                made = vector(array, graph="all", sync="bsp", name=f"{name}, gradients of {array.dtype}")
                self.parts.append((made, torch.from_numpy(array), some))

    def average(self) -> None:
        """Replace all gradients by their means over the live ranks that still take steps. One-sided.

        ValueError: a gradient is sparse. Nothing is sent.
        """
        for _, flat, some in self.parts:
            for (name, parameter), place, flag in _places(flat, some):
                if parameter.grad is not None and parameter.grad.layout != torch.strided:
                    raise ValueError(f"{name} has a sparse gradient, which malt.torch does not average")
                flag.fill_(parameter.grad is not None)
                if parameter.grad is None:
                    place.zero_()
                else:
                    place.copy_(parameter.grad)
        for made, _, _ in self.parts:
            made.scatter()
        for made, flat, some in self.parts:
            made.gather(AVG)
            for (_, parameter), place, flag in _places(flat, some):
                if not flag:
                    continue
                if parameter.grad is None:
                    parameter.grad = torch.empty_like(parameter)
                parameter.grad.copy_(place)

    def close(self) -> None:
        """Close the vectors: peers no longer wait for this rank. One-sided."""
        for made, _, _ in self.parts:
            made.close()


def _places(
    flat: Tensor, some: Sequence[tuple[str, Tensor]]
) -> Iterator[tuple[tuple[str, Tensor], Tensor, Tensor]]:  # fmt: skip
    """Yield each parameter, its place in `flat` in its shape, and its number at the end of `flat`."""
    start, flags = 0, len(flat) - len(some)
    for number, (name, parameter) in enumerate(some):
        yield (name, parameter), flat[start : start + parameter.numel()].view(parameter.shape), flat[flags + number]
        start += parameter.numel()
