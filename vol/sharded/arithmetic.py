"""Arithmetic of vectors of one layout: each rank works on its part. Scalars alone are exchanged."""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar, cast

import numpy as np

from dstorm.waits import interruption
from vol.sharded import numpy_functions
from vol.sharded.operand import Operand, is_number
from vol.update import Array

_Any = TypeVar("_Any", bound="Arithmetic")
Function = Callable[[Any, Any], Any]
"""An operation of NumPy on two parts, or a part and a number."""


class Arithmetic(Operand):
    """The operators of dense sharded vectors and temporaries.

    A number is one of Python or NumPy. Another vector has the same layout, or ValueError names both.
    """

    @property
    @abstractmethod
    def local(self) -> Array:
        """The rows of this rank: a view. Read and write it at any time. Local.

        What is written into it is whole for the pulls of others after the next malt.barrier().
        """

    @property
    def range(self) -> slice:
        """The rows of the vector that this rank owns: s.local is s.pull()[s.range]. Local."""
        return self._layout.rows(self._scalars.transport.rank)

    @interruption.whole
    def __array_function__(self, function: Any, types: Any, arguments: Any, keywords: Any) -> Any:
        """A function of NumPy, as `numpy_functions` has it. Collective where it returns a scalar, else Local.

        TypeError: it is not there, or not with these arguments.
        """
        return numpy_functions.call(function, arguments, keywords)

    @interruption.whole
    def __array_ufunc__(self, function: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        """np.sqrt(s) and its kin: a temporary, or what is made of it in `out`, a vector of this layout. Local."""
        if function is np.matmul:
            return self.__array_function__(np.dot, (), inputs, {})
        if method != "__call__" or function.signature is not None or function.nout > 1 or options:
            return NotImplemented
        made = self._elementwise(function, inputs)
        if out is None or made is NotImplemented:
            return made
        [target] = out
        if not isinstance(target, Arithmetic):
            return NotImplemented
        target._take(made)
        return target

    # -- each rank for its own part: Local -----------------------------------------------------------------------

    def copy(self, other: Operand | None = None) -> Temporary | None:
        """Take the values of `other`. Local. Errors: as `axpy`. Without `other`: return a temporary of these values."""
        if other is None:
            return self._temporary(self.local.copy())
        self._take(other)
        return None

    @interruption.whole
    def matvec(self, x: Any) -> Temporary:
        """The product of this matrix of shape (n, k) and the vector `x`, of shape (k,), the same on all ranks. Local.

        Returns a temporary of shape (n,). ValueError: another shape.
        """
        vector = np.asarray(x)
        if len(self.shape) != 2 or vector.shape != self.shape[1:]:
            raise ValueError(f"{self.name}.matvec: a matrix of shape {self.shape} and a vector of shape {vector.shape}")
        with self._begin("matvec"):
            return self._temporary(self.local @ vector)

    def max(self) -> float:
        """The largest element; NaN where one is. Collective. Errors: as `dot`; ValueError on all: there is none."""

        def find() -> float:
            if not math.prod(self.shape):
                raise ValueError(f"{self.name} has no elements")
            return float(self.local.max()) if self.local.size else -math.inf

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

    # -- operators: Local, but @ ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Temporary:
        return self._made(np.add, other)

    def __sub__(self, other: Any) -> Temporary:
        return self._made(np.subtract, other)

    def __rsub__(self, other: Any) -> Temporary:
        return self._elementwise(np.subtract, (other, self))

    def __mul__(self, other: Any) -> Temporary:
        return self._made(np.multiply, other)

    def __truediv__(self, other: Any) -> Temporary:
        return self._made(np.divide, other)

    def __rtruediv__(self, other: Any) -> Temporary:
        return self._elementwise(np.divide, (other, self))

    __radd__, __rmul__ = __add__, __mul__

    def __pow__(self, other: Any) -> Temporary:
        return self._made(np.power, other)

    def __rpow__(self, other: Any) -> Temporary:
        return self._elementwise(np.power, (other, self))

    def __lt__(self, other: Any) -> Temporary:
        return self._made(np.less, other)

    def __le__(self, other: Any) -> Temporary:
        return self._made(np.less_equal, other)

    def __gt__(self, other: Any) -> Temporary:
        return self._made(np.greater, other)

    def __ge__(self, other: Any) -> Temporary:
        return self._made(np.greater_equal, other)

    def __eq__(self, other: object) -> Temporary:  # type: ignore[override]
        return self._made(np.equal, other)

    def __ne__(self, other: object) -> Temporary:  # type: ignore[override]
        return self._made(np.not_equal, other)

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Refuse it: ValueError, as of an array. Local. A vector that is compared would count as true by its length."""
        raise ValueError(f"{self.name} is neither true nor false: np.any or np.all finds that of its elements")

    def __neg__(self) -> Temporary:
        return self._elementwise(np.negative, (self,))

    def __abs__(self) -> Temporary:
        return self._elementwise(np.abs, (self,))

    def __len__(self) -> int:
        return self.shape[0]

    def __iadd__(self: _Any, other: Any) -> _Any:
        return self._updated(np.add, other)

    def __isub__(self: _Any, other: Any) -> _Any:
        return self._updated(np.subtract, other)

    def __imul__(self: _Any, other: Any) -> _Any:
        return self._updated(np.multiply, other)

    def __itruediv__(self: _Any, other: Any) -> _Any:
        return self._updated(np.divide, other)

    # -- private -------------------------------------------------------------------------------------------------

    def _operand(self, operator: str, other: Any) -> Any:
        """Another vector, or a number. None: it is neither. ValueError: another layout."""
        return self._checked(operator, other) if isinstance(other, Operand) else other if is_number(other) else None

    def _updated(self: _Any, function: np.ufunc, other: Any) -> _Any:
        operand = self._operand("in-place operator", other)
        if operand is None:
            return cast("_Any", NotImplemented)
        self._update("in-place operator", function, operand)
        return self

    @interruption.whole
    def _made(self, function: Function, other: Any) -> Temporary:
        return self._elementwise(function, (self, other))

    def _elementwise(self, function: Callable[..., Any], inputs: Sequence[Any]) -> Temporary:
        """A temporary of function(*inputs) of the parts of vectors and numbers; NotImplemented: one is neither."""
        operands = [self._operand("operator", one) for one in inputs]
        if any(one is None for one in operands):
            return cast("Temporary", NotImplemented)
        with self._begin("operator"):
            return self._temporary(function(*(one._values if isinstance(one, Operand) else one for one in operands)))

    def _temporary(self, array: Array) -> Temporary:
        return Temporary(array, self)


class Temporary(Arithmetic):
    """The result of an operator: an array on each rank, which no other rank can reach. Local."""

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
        raise TypeError(f"{self.name} has only local memory: copy it into a sharded vector, s.copy(x), and pull that")

    def push(self, *_: Any, **__: Any) -> Any:
        """Refuse it: TypeError. Local."""
        raise TypeError(f"{self.name} has only local memory: copy it into a sharded vector, s.copy(x), and push to it")

    def __repr__(self) -> str:
        return f"<{self.name}: {self.dtype} of {self._layout}>"

    def _begin(self, call: str, holds: bool = False) -> AbstractContextManager[None]:
        self._scalars.transport.attend()
        return contextlib.nullcontext()

    def _changing(self, rows: slice) -> AbstractContextManager[None]:
        return contextlib.nullcontext()
