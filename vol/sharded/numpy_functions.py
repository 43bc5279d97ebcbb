"""NumPy's own functions of sharded vectors: each rank works on its part, and scalars are those of all rows."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from vol.sharded.operand import Operand


def call(function: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """function(*arguments, **keywords), of which an argument is a sharded vector.

    TypeError: it is not among FUNCTIONS, or not with these arguments.
    """
    stand_in = FUNCTIONS.get(function, lambda: NotImplemented)
    try:
        bound = inspect.signature(stand_in).bind(*arguments, **keywords)
    except TypeError:
        found = NotImplemented
    else:
        found = stand_in(*bound.args, **bound.kwargs)
    if found is NotImplemented:
        name = f"{function.__module__}.{function.__name__}"
        raise TypeError(
            f"{name} does not accept a sharded vector, or not with these arguments: its method pull gathers one, and "
            "local is this rank's part"
        )
    return found


def elementwise(function: Callable[..., Any], *inputs: Any) -> Any:
    """A temporary of function(*inputs) of the parts of vectors of one layout, and numbers. Local."""
    first = next(one for one in inputs if isinstance(one, Operand))
    return first._elementwise(function, inputs)  # type: ignore[attr-defined]


def _dot(one: Any, other: Any) -> Any:
    """Of two vectors the scalar product; of a vector and a number the product."""
    if not (isinstance(one, Operand) and isinstance(other, Operand)):
        return elementwise(np.multiply, one, other)
    return one.dot(other) if len(one.shape) == 1 else NotImplemented


def _vdot(one: Any, other: Any) -> Any:
    return one.dot(other) if isinstance(one, Operand) else NotImplemented


def _norm(vector: Any, ord: Any = None) -> Any:  # the name that NumPy has for it
    is_flat = len(vector.shape) == 1
    if ord is None or (ord == 2 and is_flat):
        return vector.norm()
    if is_flat and ord in (1, np.inf):
        sizes = elementwise(np.abs, vector)
        return sizes.sum() if ord == 1 else sizes.max()
    return NotImplemented


def _clip(vector: Any, a_min: Any = None, a_max: Any = None) -> Any:  # the names that NumPy has for them
    above = vector if a_min is None else elementwise(np.maximum, vector, a_min)
    return elementwise(np.positive, above) if a_max is None else elementwise(np.minimum, above, a_max)


def _size(vector: Any) -> int:
    return math.prod(vector.shape)


def _like(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda vector: elementwise(make, vector)


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.dot: _dot,
    np.inner: _dot,
    np.vdot: _vdot,
    np.linalg.norm: _norm,
    np.sum: lambda vector: vector.sum(),
    np.mean: lambda vector: float(np.divide(vector.sum(), _size(vector))),
    np.max: lambda vector: vector.max(),
    np.min: lambda vector: -elementwise(np.multiply, vector, -1).max(),
    np.count_nonzero: lambda vector: vector.nnz(),
    np.any: lambda vector: vector.nnz() > 0,
    np.all: lambda vector: vector.nnz() == _size(vector),
    np.shape: lambda vector: vector.shape,
    np.ndim: lambda vector: len(vector.shape),
    np.size: _size,
    np.copy: lambda vector: vector.copy(),
    np.clip: _clip,
    np.where: lambda condition, x, y: elementwise(np.where, condition, x, y),
    np.full_like: lambda vector, fill_value: elementwise(np.full_like, vector, fill_value),
    **{make: _like(make) for make in (np.zeros_like, np.ones_like, np.empty_like)},
}
"""What stands for a function of NumPy; of its arguments it takes those that it names."""
