"""The base of sharded vectors and temporaries: scalars that all ranks find of them together, and changes in place.

A rank changes its part block by block, so that no other rank reads a block half-done.
"""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from dstorm.waits import interruption
from dstorm.words import shown
from vol.merging.undo_buffer import is_kept
from vol.sharded.layout import ShardLayout
from vol.sharded.scalars import Scalars
from vol.update import Array

Create = Callable[[ShardLayout, str], Any]
"""A function that makes a sharded vector of zeros of this layout. Collective. Its second argument is the call."""


class Operand(ABC):
    """The base of sharded vectors and temporaries: a layout, this rank's rows, and scalars of all rows.

    A number is one of Python or NumPy.
    """

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

    # -- changes: each rank of its own part ----------------------------------------------------------------------

    def axpy(self, a: Any, x: Operand) -> None:
        """Add a * x: a number times a vector. Local. TypeError, ValueError: another one; nothing has changed."""
        factor = number("a", a)
        self._update("axpy", lambda mine, x, **into: np.add(mine, factor * x, **into), self._checked("axpy", x))

    def scale(self, a: Any) -> None:
        """Multiply by the number `a`. Local. TypeError: it is none."""
        self._update("scale", np.multiply, number("a", a))

    def sub(self, x: Operand) -> None:
        """Subtract the vector `x`. Local. Errors: as `axpy`."""
        self._update("sub", np.subtract, self._checked("sub", x))

    def mul(self, x: Operand) -> None:
        """Multiply by the vector `x`, element by element. Local. Errors: as `axpy`."""
        self._update("mul", np.multiply, self._checked("mul", x))

    def fill(self, value: Any) -> None:
        """Set all elements to the number `value`. Local. TypeError: it is none."""
        constant = number("value", value)
        self._change("fill", lambda mine, _: mine.fill(constant))

    @interruption.whole
    def zip(self, function: Callable[..., Any], *others: Operand) -> None:
        """Change the parts by function(s.local, *[other.local for other in others]). Local.

        It returns an array of the part's shape, which becomes the part of s; or a tuple of them, which become those of
        s and of the first others, in order; or None: it has changed its arguments in place. They are copies, and are
        written back when it has returned. Of sparse vectors they are the values of all keys of this rank that any of
        them has, keys ascending.

        ValueError, TypeError: another layout; a vector that is given twice; another shape is returned. RuntimeError: it
        is called in a zip of one of these vectors, as is what else changes them. The errors of the function. No vector
        has changed then.
        """
        vectors: Sequence[Operand] = (self, *others)
        if len(set(map(id, vectors))) < len(vectors):
            raise ValueError(f"{self.name}.zip: a vector is given twice")
        with contextlib.ExitStack() as calls:
            for vector in vectors:
                self._checked("zip", vector)
                calls.enter_context(vector._begin("zip"))
                vector._check_not_held("zip")
                calls.enter_context(vector._begin("zip", holds=True))
            rows = self._rows_of(vectors)
            parts = [vector._copied(rows) for vector in vectors]
            returned = interruption.exposed(function, *parts)
            for vector in vectors:
                calls.enter_context(vector._begin("zip"))  # it may have closed them
            results = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
            if len(results) > len(vectors):
                raise ValueError(f"{self.name}.zip: {len(results)} arrays were returned for {len(vectors)} vectors")
            for result, part, vector in zip(results, parts, vectors, strict=False):
                self._check_result(result, part, vector)
            new = [one.astype(vector.dtype, copy=False) for one, vector in zip(results, vectors, strict=False)]
            for vector, part in zip(vectors, (*new, *parts[len(new) :]), strict=True):
                vector._set(part, rows)

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
            raise TypeError(f"{self.name}.{call} takes a sharded vector, got {shown(other)}")
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

    def _rows_of(self, vectors: Sequence[Operand]) -> Any:
        """Return the rows of this rank that any of `vectors` has: all of them."""
        return slice(None)

    def _copied(self, rows: Any) -> Array:
        """A copy of these rows of this rank."""
        copy: Array = self._values[rows].copy()
        return copy

    def _set(self, values: Array, rows: Any) -> None:
        """Set `rows` of this rank, as `_rows_of` returns them, to `values`."""
        self._change_blocks(lambda mine, some: np.copyto(mine, values[some], casting="same_kind"))

    def _take(self, other: Operand) -> None:
        """Take the values of `other`. Errors: as `axpy`."""
        self._update("copy", lambda _, theirs, **into: np.positive(theirs, **into), self._checked("copy", other))

    @interruption.whole
    def _change(self, call: str, change: Callable[[Array, slice], object]) -> None:
        """Call change(values, rows) for each block of this rank: a view, and where it lies in the part."""
        with self._begin(call):
            self._check_not_held(call)
            self._change_blocks(change)

    def _change_blocks(self, change: Callable[[Array, slice], object]) -> None:
        before = self._values.copy() if is_kept(self._values.size) else None
        try:
            self._set_blocks(change)
        except BaseException:
            if before is not None:
                self._set_blocks(lambda mine, rows: np.copyto(mine, before[rows]))
            raise

    def _set_blocks(self, change: Callable[[Array, slice], object]) -> None:
        for rows in self._blocks():
            with self._changing(rows):
                change(self._values[rows], rows)

    @interruption.whole
    def _update(self, call: str, function: Callable[..., Any], other: Any) -> None:
        """Take function(values, theirs), a ufunc, for the values. `other`: a vector of this layout, or a number."""
        with self._begin(call):
            self._check_not_held(call)
            theirs = self._met(other) if isinstance(other, Operand) else other

            def change(mine: Array, rows: slice) -> None:
                operand = theirs[rows] if isinstance(other, Operand) else theirs
                function(mine, operand, out=mine, casting="same_kind", where=self._held(rows))

            self._change_blocks(change)

    def _met(self, other: Operand) -> Array:
        """Return `_aligned(other)`, once this vector has all the rows of this rank that `other` has."""
        return self._aligned(other)

    def _held(self, rows: slice) -> Any:
        """Return which of a block of `_values` are numbers of this vector: all of them."""
        return True

    def _check_result(self, result: Any, part: Array, vector: Operand) -> None:
        """Check what the function of zip has returned for the part of `vector`."""
        if not isinstance(result, np.ndarray) or result.shape != part.shape:
            got = f"shape {result.shape}" if isinstance(result, np.ndarray) else repr(result)
            raise ValueError(f"{self.name}.zip: an array of shape {part.shape} should be returned, got {got}")
        if not np.can_cast(result.dtype, vector.dtype, "same_kind"):
            raise TypeError(f"{self.name}.zip: {result.dtype} was returned for {vector.name} of {vector.dtype}")


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


def is_number(value: Any) -> bool:
    """Return whether `value` is a number of Python or NumPy. Pure."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "fiu"
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def number(name: str, value: Any) -> Any:
    """`value`, if it is a number. TypeError. Pure."""
    if not is_number(value):
        raise TypeError(f"{name} must be a number, got {shown(value)}")
    return value
