"""The base of sharded vectors and temporaries, and the scalars that all ranks find of them together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dstorm.waits import interruption
from vol.sharded.layout import ShardLayout
from vol.sharded.scalars import Scalars
from vol.update import Array

Create = Callable[[ShardLayout, str], Any]
"""A function that makes a sharded vector of zeros of this layout. Collective. Its second argument is the call."""


class Operand(ABC):
    """The base of sharded vectors and temporaries: a layout, this rank's rows, and scalars of all rows."""

    name: str
    _layout: ShardLayout
    _scalars: Scalars
    _create: Create
    """Makes a sharded vector."""

    _is_held = False
    """Whether what others push waits, as a zip or a collective call is at work here."""

    __array_ufunc__: Any = None  # numbers of NumPy leave operators to this class

    @property
    @abstractmethod
    def local(self) -> Any:
        """The part of this rank. Local."""

    @property
    def _values(self) -> Array:
        """The numbers of this rank: a view. Local. ClosedError."""
        values: Array = self.local
        return values

    @abstractmethod
    def _begin(self, call: str, holds: bool = False) -> AbstractContextManager[None]:
        """Enter a call: check that the vector is open, and add what others have pushed.

        `holds`: what they push from now on is added when the call is over.
        """

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

    def derive(self) -> Any:
        """Return a sharded vector of zeros of this layout and dtype. Collective. Errors: as malt.sharded."""
        return self._create(self._layout, f"{self.name}.derive")

    def dot(self, other: Operand) -> float:
        """The scalar product: the same bits on all ranks, as of all scalars. Collective.

        ValueError, TypeError, on all ranks: another layout, no vector. PeerLost, on all: a rank has failed.
        DeadlinePassed, MismatchedCalls: as malt.barrier.
        """
        return dots([(self, other)])[0]

    def norm(self) -> float:
        """The Euclidean norm. Collective. Errors: as `dot`."""
        return math.sqrt(self.dot(self))

    def sum(self) -> float:
        """The sum of the elements. Collective. Errors: as `dot`."""
        return sum(self._of_all("sum", lambda: float(self._values.sum(dtype=np.float64))))

    def nnz(self) -> int:
        """The number of elements that are not zero. Collective. Errors: as `dot`."""
        return int(sum(self._of_all("nnz", lambda: int(np.count_nonzero(self._values)))))

    def __matmul__(self, other: Any) -> float:
        return self.dot(other)  # which refuses what is no vector on all ranks

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuse it: TypeError. Local. NumPy would take the vector for one object, and np.dot multiply by element."""
        raise TypeError(f"{self.name} is not an array: its method pull gathers one, and local is this rank's part")

    # -- private -------------------------------------------------------------------------------------------------

    def _check_not_held(self, call: str) -> None:
        """RuntimeError: `call` is made by the function of a zip of this vector, whose result would take its place."""
        if self._is_held:
            raise RuntimeError(f"{self.name}.{call}: the function of zip may not change the vectors that zip changes")

    def _blocks(self) -> Iterator[slice]:
        return self._layout.blocks(self._scalars.transport.rank)

    def _checked(self, call: str, other: Any) -> Operand:
        """`other`, a vector of this layout. TypeError: it is no vector. ValueError: it has another layout."""
        if not isinstance(other, Operand):
            raise TypeError(f"{self.name}.{call} takes a sharded vector, got {other!r}")
        if other._layout != self._layout:
            raise ValueError(
                f"{self.name}.{call}: the layouts differ: {self.name} has {self._layout}, {other.name} has "
                f"{other._layout}"
            )
        return other

    def _aligned(self, other: Operand) -> Array:
        """The numbers of `other`, each in the place that its row has in `_values` of this vector. ClosedError."""
        return other._values

    def _of_all(self, call: str, find: Callable[[], float]) -> list[float]:
        """Return the results of find() on all ranks, in rank order. Collective."""
        return [number for (number,) in self._numbers_of_all(call, lambda: (find(),))]

    def _numbers_of_all(self, call: str, find: Callable[[], Sequence[float]]) -> list[tuple[float, ...]]:
        """The same of several numbers, in one exchange."""

        return self._scalars.of_all(f"{self.name}.{call}", lambda: self._found(call, find))

    @interruption.whole
    def _found(self, call: str, find: Callable[[], Sequence[float]]) -> Sequence[float]:
        """Return the result of find()."""
        with self._begin(call), np.errstate(all="ignore"):  # a warning may be an error, on one rank alone
            return find()


def dots(pairs: Sequence[tuple[Operand, Operand]]) -> list[float]:
    """The scalar product of each pair of vectors, all of one layout, in one exchange. Collective. Errors: as `dot`."""
    first = pairs[0][0]

    def find() -> list[float]:
        parts = [(first._checked("dot", x)._values, _numbers(x._aligned(x._checked("dot", y)))) for x, y in pairs]
        totals = [0.0] * len(parts)
        for rows in first._blocks():
            for place, (mine, theirs) in enumerate(parts):
                totals[place] += float(np.vdot(mine[rows], theirs[rows]))
        return totals

    return [sum(numbers) for numbers in zip(*first._numbers_of_all("dot", find), strict=True)]


def _numbers(values: Array) -> Array:
    """The values; of a mask ones and zeros, as the product of two masks is a mask in NumPy."""
    return values.astype(np.float64) if values.dtype.kind == "b" else values
