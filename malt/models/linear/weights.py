"""The placement of the weights: all on every rank, or a part on each. Both kinds have the same attributes and methods.

Row j of the weights is that of feature j, and the last row is that of the intercept. A row is a number, or has one for
each class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np

from dstorm import PeerLost
from malt.models.common import Array, Sums, compared_parts, moved
from malt.models.linear.rows import Block
from malt.session.collectives import barrier
from malt.session.vectors.sharded import sharded

NUMBERS: Final = 3
"""What ranks add up beside gradients: losses, correct rows, rows."""


def weights_of(shape: tuple[int, ...], saved: Any = None, is_sharded: bool = False, how: str = "auto") -> Weights:
    """Weights on every rank, whose gradients are summed by the algorithm `how`, or a part on each. Collective.

    `saved`: those of a checkpoint; else they are zeros.
    """
    return Sharded(shape, saved) if is_sharded else Replicated(shape, saved, how)


class Replicated:
    """Every rank has all weights, and ranks add up whole gradients."""

    def __init__(self, shape: tuple[int, ...], saved: Any = None, algorithm: str = "auto") -> None:
        self.w: Any = np.zeros(shape) if saved is None else saved
        self.penalized = slice(0, shape[0] - 1)
        """The rows of this rank that are penalized: not the intercept's."""
        self._exchange = Sums(algorithm)
        self.traffic: Sequence[Any] = [self._exchange]
        self._sums = np.zeros(self.w.size + NUMBERS)

    def another(self, saved: Any = None) -> Any:
        """Return `saved`, or a new array of zeros. Local."""
        return np.zeros_like(self.w) if saved is None else saved

    def local(self, x: Array) -> Array:
        """Return x: all rows are here. Local."""
        return x

    def seen(self, x: Array, block: Block) -> Array:
        """Return x. Local."""
        return x

    def memory(self, block: Block) -> Array:
        """Return a view of the sums of `added`, all zeros now, of the shape of `seen`. Local."""
        self._sums[:] = 0
        return self._sums[: self.w.size].reshape(self.w.shape)

    def added(self, own: Array, block: Block, numbers: Sequence[float], part: float) -> tuple[Array, Array]:
        """Add up `own`, which lies in `memory`, in place, and `numbers`, in one exchange. Collective.

        `part`: what is added to the first number for the rows `local`, once. The sums are valid until the next call.
        """
        totals = self._sums[self.w.size :]
        totals[:] = numbers
        self._exchange.take(self._sums)
        totals[0] += part
        return own, totals

    def totals(self, numbers: Sequence[float], part: float) -> Array:
        """Return the sums over ranks of `numbers`, as those of `added`. Collective."""
        totals = np.array(numbers, np.float64)
        self._exchange.take(totals)
        totals[0] += part
        return totals

    def update(self, step: Callable[..., None], x: Array, *others: Array) -> None:
        """Call step(x, *others): all ranks do the same. Local."""
        step(x, *others)

    def whole(self, x: Array) -> Array:
        """Return x. Local."""
        return x

    def compared(self, x: Array) -> Mapping[str, Array]:
        """Return x itself, which is the same on all ranks. Local."""
        return {"w": x}


class Sharded:
    """Each rank has a part of the weights. It reads the rows that its blocks need, and adds to them at their owners.

    Where a rank fails with its part, pull and push know it on one rank alone: the next barrier raises it on all.
    """

    def __init__(self, shape: tuple[int, ...], saved: Any = None) -> None:
        self.w: Any = sharded(shape, "float64") if saved is None else saved
        self._gradient = self.w.derive()
        mine = self.w.range
        self.penalized = slice(0, max(min(mine.stop, shape[0] - 1) - mine.start, 0))
        self._numbers = Sums()
        self.traffic: Sequence[Any] = [moved(self.w), moved(self._gradient), self._numbers]

    def another(self, saved: Any = None) -> Any:
        """Return `saved`, or a new sharded vector of zeros, whose traffic counts. Collective."""
        made = self.w.derive() if saved is None else saved
        self.traffic = [*self.traffic, moved(made)]
        return made

    def local(self, x: Any) -> Array:
        """Return the rows of this rank: a view. Local."""
        local: Array = x.local
        return local

    def seen(self, x: Any, block: Block) -> Array:
        """Return the rows of a block, pulled from their owners after a barrier: a copy. Collective."""
        self._gradient.fill(0)  # before the barrier, after which others push to it
        barrier()
        rows = self.memory(block)
        with suppress(PeerLost):
            x.pull(block.columns, rows)
        return rows

    def memory(self, block: Block) -> Array:
        """Return new zeros, a row for each column of the block. Local."""
        assert block.columns is not None
        return np.zeros((len(block.columns), *self.w.shape[1:]))

    def added(self, own: Array, block: Block, numbers: Sequence[float], part: float) -> tuple[Any, Array]:
        """Push `own` to its owners; return the sharded gradient, and the sums of `numbers`. Collective."""
        with suppress(PeerLost):
            self._gradient.push(own, block.columns)
        totals = self._summed(numbers, part)
        self._gradient.settle()  # all ranks have pushed before the numbers were added up
        return self._gradient, totals

    def totals(self, numbers: Sequence[float], part: float) -> Array:
        """Return the sums over ranks of `numbers`, after a barrier. Collective."""
        totals = self._summed(numbers, part)
        barrier()
        return totals

    def _summed(self, numbers: Sequence[float], part: float) -> Array:
        totals = np.array(numbers, np.float64)
        totals[0] += part
        self._numbers.take(totals)
        return totals

    def update(self, step: Callable[..., None], x: Any, *others: Any) -> None:
        """Call step with the rows of this rank of x and others. Local."""
        x.zip(step, *others)

    def whole(self, x: Any) -> Array:
        """Return all rows, pulled from their owners: a copy. One-sided."""
        rows: Array = x.pull()
        return rows

    def compared(self, x: Any) -> Mapping[str, Array]:
        """Return the SHA-256 of each part. Collective."""
        return compared_parts(x.local.tobytes(), x.owners)


Weights = Replicated | Sharded
"""Weights of float64, and their exchange. An `x` is `w`, which is trained, or another vector of its kind."""
