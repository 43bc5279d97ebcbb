"""The operands of arithmetic: vectors of one layout, and the scalars that all ranks find of them together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from vol.sharded.layout import ShardLayout
from vol.sharded.scalars import Scalars
from vol.update import Array

Create = Callable[[ShardLayout, str], Any]
"""A function that makes a sharded vector of zeros of this layout. Collective. Its second argument is the call."""


class Operand(ABC):
    """What every sharded vector and temporary has: a layout, this rank's rows, and scalars of all rows."""

    name: str
    _layout: ShardLayout
    _scalars: Scalars
    _create: Create
    """Makes a sharded vector."""

    @property
    @abstractmethod
    def local(self) -> Array:
        """The rows of this rank: a view. Read and write it at any time. Local.

        What is written into it is whole for the pulls of others after the next malt.barrier().
        """

    @abstractmethod
    def _begin(self, call: str, holds: bool = False) -> AbstractContextManager[None]:
        """Enter a call: check that the vector is open, and add what others have pushed.

        `holds`: what they push from now on is added when the call is over.
        """

    @abstractmethod
    def _changing(self, rows: slice) -> AbstractContextManager[None]:
        """Keep the pulls of others from `rows` of this rank while the code block changes them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(n,) or (n, k)."""
        return self._layout.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an element."""
        return self._layout.dtype

    @property
    def owners(self) -> tuple[int, ...]:
        """The ranks that have a part, ascending. Local."""
        return self._layout.ranks

    @property
    def range(self) -> slice:
        """The rows of the vector that this rank owns: s.local is s.pull()[s.range]. Local."""
        return self._layout.rows(self._scalars.transport.rank)

    def derive(self) -> Any:
        """Return a sharded vector of zeros of this layout and dtype. Collective. Errors: as malt.sharded."""
        return self._create(self._layout, f"{self.name}.derive")

    def dot(self, other: Operand) -> float:
        """The scalar product: the same bits on all ranks, as of all scalars. Collective.

        ValueError, TypeError, on all ranks: another layout, no vector. PeerLost, on all: a rank has failed.
        DeadlinePassed, MismatchedCalls: as malt.barrier.
        """

        def find() -> float:
            theirs = self._part("dot", other)
            return sum(float(np.vdot(self.local[rows], theirs[rows])) for rows in self._blocks())

        return sum(self._of_all("dot", find))

    def norm(self) -> float:
        """The Euclidean norm. Collective. Errors: as `dot`."""
        return math.sqrt(self.dot(self))

    def sum(self) -> float:
        """The sum of the elements. Collective. Errors: as `dot`."""
        return sum(self._of_all("sum", lambda: float(self.local.sum(dtype=np.float64))))

    def nnz(self) -> int:
        """The number of elements that are not zero. Collective. Errors: as `dot`."""
        return int(sum(self._of_all("nnz", lambda: int(np.count_nonzero(self.local)))))

    def max(self) -> float:
        """The largest element; NaN where one is. Collective. Errors: as `dot`; ValueError on all: there is none."""

        def find() -> float:
            if not math.prod(self.shape):
                raise ValueError(f"{self.name} has no elements")
            return float(self.local.max(initial=-np.inf))

        return float(np.max(self._of_all("max", find)))

    def rmatvec(self, y: Operand) -> Array:
        """The product of this matrix, transposed, and the vector `y` of shape (n,), on the same ranks. Collective.

        Returns an array of shape (k,), the same bits on all ranks. Errors: as `dot`.
        """
        found: list[Array] = []

        def find() -> float:
            wanted = replace(self._layout, shape=self.shape[:1])
            if len(self.shape) != 2 or not isinstance(y, Operand) or y._layout != wanted:
                given = y._layout if isinstance(y, Operand) else repr(y)
                raise ValueError(f"{self.name}.rmatvec: a matrix of {self._layout}, and a vector of {given}")
            found.append(np.ascontiguousarray(self.local.T @ y.local))
            return 0.0

        with self._scalars.transport.calling(f"{self.name}.rmatvec"):
            self._of_all("rmatvec", find)
            self._scalars.transport.allreduce(found[0], "sum")
            self._of_all("rmatvec", lambda: 0.0)  # PeerLost: the sum may lack the part of a rank that has failed since
        self._scalars.count(found[0].nbytes)
        return found[0]

    # -- private -------------------------------------------------------------------------------------------------

    def _blocks(self) -> Iterator[slice]:
        return self._layout.blocks(self._scalars.transport.rank)

    def _part(self, call: str, other: Any) -> Array:
        """The part of `other`. TypeError: it is no vector. ValueError: it has another layout. ClosedError."""
        if not isinstance(other, Operand):
            raise TypeError(f"{self.name}.{call} takes a sharded vector, got {other!r}")
        if other._layout != self._layout:
            raise ValueError(
                f"{self.name}.{call}: the layouts differ: {self.name} has {self._layout}, {other.name} has "
                f"{other._layout}"
            )
        return other.local

    def _of_all(self, call: str, find: Callable[[], float]) -> list[float]:
        """What find() returns on each rank, in rank order. Collective."""

        def found() -> float:
            with self._begin(call), np.errstate(all="ignore"):  # a warning may be an error, on one rank alone
                return find()

        return self._scalars.of_all(f"{self.name}.{call}", found)
