"""Arithmetic of vectors of one layout: each rank works on its part. Scalars alone are exchanged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from dstorm import interruption
from vol.sharded.operand import Operand
from vol.update import Array

_Any = TypeVar("_Any", bound="Arithmetic")
Function = Callable[[Any, Any], Any]
"""An operation of NumPy on two parts, or a part and a number."""


class Arithmetic(Operand):
    """What sharded vectors and temporaries have in common.

    A number is one of Python or NumPy. Another vector has the same layout, or ValueError names both.
    """

    __array_ufunc__ = None  # numbers of NumPy leave operators to this class

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuse it: TypeError. Local. NumPy would take the vector for one object, and np.dot multiply by element."""
        raise TypeError(f"{self.name} is no array: its method pull gathers one, and local is this rank's part")

    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Temporary:
        """np.zeros_like(s) is a temporary of zeros. NumPy's other functions refuse it: TypeError. Local."""
        if function is not np.zeros_like or len(arguments) != 1 or keywords:
            self.__array__()
        with self._begin("zeros_like"):
            return self._temporary(np.zeros_like(self.local))

    # -- each rank for its own part: Local -----------------------------------------------------------------------

    def axpy(self, a: Any, x: Arithmetic) -> None:
        """Add a * x: a number times a vector. Local. TypeError, ValueError: another one; nothing has changed."""
        factor, theirs = _number("a", a), self._part("axpy", x)
        self._update("axpy", lambda mine, x, **into: np.add(mine, factor * x, **into), theirs)

    def scale(self, a: Any) -> None:
        """Multiply by the number `a`. Local. TypeError: it is none."""
        self._update("scale", np.multiply, _number("a", a))

    def sub(self, x: Arithmetic) -> None:
        """Subtract the vector `x`. Local. Errors: as `axpy`."""
        self._update("sub", np.subtract, self._part("sub", x))

    def mul(self, x: Arithmetic) -> None:
        """Multiply by the vector `x`, element by element. Local. Errors: as `axpy`."""
        self._update("mul", np.multiply, self._part("mul", x))

    def fill(self, value: Any) -> None:
        """Set all elements to the number `value`. Local. TypeError: it is none."""
        number = _number("value", value)
        self._change("fill", lambda mine, _: mine.fill(number))

    def copy(self, other: Arithmetic | None = None) -> Temporary | None:
        """Take the values of `other`. Local. Errors: as `axpy`. Without `other`: return a temporary of these values."""
        if other is None:
            return self._temporary(self.local.copy())
        self._set("copy", self._part("copy", other))
        return None

    def zip(self, function: Callable[..., Any], *others: Arithmetic) -> None:
        """Change the parts by function(s.local, *[other.local for other in others]). Local.

        It returns an array of the part's shape, which becomes the part of s; or a tuple of them, which become those of
        s and of the first others, in order; or None: it has changed its arguments in place. They are copies, and are
        written back when it has returned.

        ValueError, TypeError: another layout; another shape is returned. The errors of the function. No vector has
        changed then.
        """
        vectors: Sequence[Arithmetic] = (self, *others)
        with contextlib.ExitStack() as calls:
            for vector in vectors:
                self._part("zip", vector)
                calls.enter_context(vector._begin("zip", holds=True))
            parts = [vector.local.copy() for vector in vectors]
            returned = function(*parts)
            results = returned if isinstance(returned, tuple) else () if returned is None else (returned,)
            self._check_results(results, vectors)
            for vector, part in zip(vectors, (*results, *parts[len(results) :]), strict=True):
                vector._set("zip", part)

    def matvec(self, x: Any) -> Temporary:
        """The product of this matrix of shape (n, k) and the vector `x`, of shape (k,), the same on all ranks. Local.

        Returns a temporary of shape (n,). ValueError: another shape.
        """
        vector = np.asarray(x)
        if len(self.shape) != 2 or vector.shape != self.shape[1:]:
            raise ValueError(f"{self.name}.matvec: a matrix of shape {self.shape} and a vector of shape {vector.shape}")
        with self._begin("matvec"):
            return self._temporary(self.local @ vector)

    # -- operators: Local, but @ ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Temporary:
        return self._made(np.add, other)

    def __sub__(self, other: Any) -> Temporary:
        return self._made(np.subtract, other)

    def __rsub__(self, other: Any) -> Temporary:
        return self._made(lambda mine, theirs: np.subtract(theirs, mine), other)

    def __mul__(self, other: Any) -> Temporary:
        return self._made(np.multiply, other)

    def __truediv__(self, other: Any) -> Temporary:
        return self._made(np.divide, other)

    def __rtruediv__(self, other: Any) -> Temporary:
        return self._made(lambda mine, theirs: np.divide(theirs, mine), other)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Temporary:
        return self._made(np.multiply, -1)

    def __iadd__(self: _Any, other: Any) -> _Any:
        return self._updated(np.add, other)

    def __isub__(self: _Any, other: Any) -> _Any:
        return self._updated(np.subtract, other)

    def __imul__(self: _Any, other: Any) -> _Any:
        return self._updated(np.multiply, other)

    def __itruediv__(self: _Any, other: Any) -> _Any:
        return self._updated(np.divide, other)

    def __matmul__(self, other: Any) -> float:
        return self.dot(other)  # which refuses what is no vector on all ranks

    # -- private -------------------------------------------------------------------------------------------------

    def _operand(self, operator: str, other: Any) -> Any:
        """The part of another vector, or a number. None: it is neither. ValueError: another layout."""
        return self._part(operator, other) if isinstance(other, Arithmetic) else other if _is_number(other) else None

    def _change(self, call: str, change: Callable[[Array, slice], object]) -> None:
        """Call change(values, rows) for each block of this rank: a view, and where it lies in the part."""
        with self._begin(call):
            self._change_blocks(change)

    @interruption.message
    def _change_blocks(self, change: Callable[[Array, slice], object]) -> None:
        try:
            for rows in self._blocks():
                with self._changing(rows):
                    change(self.local[rows], rows)
        finally:
            if interruption.pending is not None:
                interruption.raise_pending()

    def _update(self, call: str, function: Callable[..., Any], theirs: Any) -> None:
        """Take function(values, theirs), a ufunc, for the values. `theirs`: a part, or a number."""

        def change(mine: Array, rows: slice) -> None:
            operand = theirs[rows] if isinstance(theirs, np.ndarray) and theirs.ndim else theirs
            function(mine, operand, out=mine, casting="same_kind")

        self._change(call, change)

    def _set(self, call: str, values: Array) -> None:
        self._change(call, lambda mine, rows: np.copyto(mine, values[rows], casting="same_kind"))

    def _updated(self: _Any, function: np.ufunc, other: Any) -> _Any:
        operand = self._operand("in-place operator", other)
        if operand is None:
            return cast("_Any", NotImplemented)
        self._update("in-place operator", function, operand)
        return self

    def _made(self, function: Function, other: Any) -> Temporary:
        operand = self._operand("operator", other)
        if operand is None:
            return cast("Temporary", NotImplemented)
        with self._begin("operator"):
            return self._temporary(function(self.local, operand))

    def _temporary(self, array: Array) -> Temporary:
        return Temporary(array, self)

    def _check_results(self, results: Sequence[Any], vectors: Sequence[Arithmetic]) -> None:
        """Check what the function of zip has returned."""
        if len(results) > len(vectors):
            raise ValueError(f"{self.name}.zip: {len(results)} arrays were returned for {len(vectors)} vectors")
        for result, vector in zip(results, vectors, strict=False):
            mine = vector.local
            if not isinstance(result, np.ndarray) or result.shape != mine.shape:
                got = f"shape {result.shape}" if isinstance(result, np.ndarray) else repr(result)
                raise ValueError(f"{self.name}.zip: an array of shape {mine.shape} should be returned, got {got}")
            if not np.can_cast(result.dtype, mine.dtype, "same_kind"):
                raise TypeError(f"{self.name}.zip: {result.dtype} was returned for {vector.name} of {mine.dtype}")


class Temporary(Arithmetic):
    """What an operator makes of vectors: an array on each rank, which no other rank can reach. Local."""

    def __init__(self, array: Array, source: Arithmetic) -> None:
        self.name = f"a temporary of {source.name.removeprefix('a temporary of ')}"
        shape = source.shape[:1] + array.shape[1:]
        self._layout = replace(source._layout, shape=shape, dtype=array.dtype)
        self._scalars, self._create, self._array = source._scalars, source._create, array

    @property
    def local(self) -> Array:
        """The rows of this rank. Local."""
        return self._array

    def pull(self, *_: Any, **__: Any) -> Any:
        """Refuse it: TypeError. Local."""
        raise TypeError(f"{self.name} has local memory alone: copy it into a sharded vector, s.copy(x), and pull that")

    def push(self, *_: Any, **__: Any) -> Any:
        """Refuse it: TypeError. Local."""
        raise TypeError(f"{self.name} has local memory alone: copy it into a sharded vector, s.copy(x), and push to it")

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} of {self._layout}>"

    def _begin(self, call: str, holds: bool = False) -> AbstractContextManager[None]:
        self._scalars.transport.attend()
        return contextlib.nullcontext()

    def _changing(self, rows: slice) -> AbstractContextManager[None]:
        return contextlib.nullcontext()


def _is_number(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "fiu"
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _number(name: str, value: Any) -> Any:
    """`value`, if it is a number. TypeError."""
    if not _is_number(value):
        raise TypeError(f"{name} must be a number, got {value!r}")
    return value
