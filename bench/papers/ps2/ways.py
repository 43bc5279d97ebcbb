"""The ways to update a sharded vector by others: where the parts lie, by a worker for each part, all on one rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import malt

ADAM_S, DOT_S = 1e-8, 5e-10
"""What a rank of the simulation computes for an element."""


class Vectors(NamedTuple):
    """What Adam works on: sharded vectors of one layout."""

    w: Any
    mean: Any
    variance: Any
    gradient: Any


class Way(NamedTuple):
    """Where a vector is updated."""

    name: str
    rows: Callable[[Sequence[tuple[int, int]]], tuple[int, int]] | None
    """The rows that this rank pulls, of the ranges of the owners, by rank. None: each rank has its part at hand."""


def _of_the_next(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return ranges[(malt.rank() + 1) % malt.size()]


def _of_all(ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return (0, ranges[-1][1]) if malt.rank() == 0 else (0, 0)


ZIP = Way("malt: where they are stored", None)
WORKERS = Way("pull, update, push", _of_the_next)
RANK_0 = Way("through rank 0", _of_all)
WAYS = (ZIP, WORKERS, RANK_0)


class Worker:
    """A rank that works on `vectors` in one of the ways. The constructor is Collective."""

    def __init__(self, way: Way, vectors: Vectors) -> None:
        self._vectors, self._step = vectors, malt.optim.adam()
        own = vectors.w.range
        ranges = malt.allgather([own.start, own.stop])
        self._rows = slice(*(way.rows(ranges) if way.rows else (own.start, own.stop)))
        self._is_at_hand = way.rows is None

    def adam(self) -> None:
        """A step of Adam. Local where the parts are at hand, else One-sided: it is made after the next malt.barrier."""
        w, *others = self._vectors
        malt.compute(ADAM_S * self._count)
        if self._is_at_hand:
            w.zip(self._step, *others)
        elif self._count:
            before = [vector.pull(self._rows) for vector in self._vectors]
            after = [part.copy() for part in before]
            self._step(*after)
            for vector, old, new in zip(self._vectors[:-1], before, after, strict=False):
                vector.push(new - old, self._rows)

    def dot(self) -> float:
        """The scalar product of w and the gradient. Collective."""
        w, gradient = self._vectors.w, self._vectors.gradient
        malt.compute(DOT_S * self._count)
        if self._is_at_hand:
            found: float = w.dot(gradient)
            return found
        parts = malt.allgather(float(np.vdot(w.pull(self._rows), gradient.pull(self._rows))))
        return float(sum(parts))

    @property
    def _count(self) -> int:
        return int(self._rows.stop - self._rows.start)


class Exchange:
    """What all ways have in common: the gradients of all ranks go to the owners, and the weights to all ranks."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors, self._gradient = vectors, np.full(vectors.w.shape, 1e-3, vectors.w.dtype)
        self._weights = np.empty_like(self._gradient)

    def once(self) -> None:
        """Push a gradient of all elements, and pull all weights. Collective."""
        self._vectors.gradient.push(self._gradient)
        malt.barrier()
        self._vectors.w.pull(out=self._weights)
