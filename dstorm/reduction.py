"""The mean, sum, maximum and minimum of the arrays of all ranks. Pure.

Arrays are combined element by element, in rank order. So the result does not depend on how they were cut into pieces.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

_COMBINE: Final[dict[str, np.ufunc]] = {"mean": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}
OPERATIONS: Final = tuple(_COMBINE)


def accumulator(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype in which arrays of `dtype` are combined: float32 for float16, otherwise `dtype`."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def counting(weights: Mapping[int, float] | None, ranks: Collection[int]) -> list[int]:
    """The ranks of `ranks` that have a positive weight, ascending; all of them where `weights` is None.

    ValueError: no rank has a positive weight.
    """
    found = sorted(rank for rank in ranks if weights is None or weights.get(rank, 0.0) > 0)
    if not found:
        raise ValueError("all weights are zero")
    return found


def reduce_into(
    result: NDArray[Any], parts: Mapping[int, NDArray[Any]], op: str, weights: Mapping[int, float] | None = None
) -> None:  # fmt: skip
    """Write the reduction of `parts` into `result`.

    `parts`: arrays by rank, of the shape of `result` and of dtype accumulator(result.dtype), of ranks that count.
    `weights`: positive weights by rank, for a mean. Equal weights give the same bits as no weights. NaN, infinities and
    overflow pass as in NumPy, without a warning: an error raised here would be raised on one rank alone.
    """
    ranks = sorted(parts)
    by_weight = factors(op, weights, ranks)
    with np.errstate(all="ignore"):
        if by_weight:
            total = parts[ranks[0]] * by_weight[0]
            for rank, factor in zip(ranks[1:], by_weight[1:], strict=True):
                np.add(total, parts[rank] * factor, out=total)
        else:
            total = parts[ranks[0]].copy()
            for rank in ranks[1:]:
                _COMBINE[op](total, parts[rank], out=total)
        if op == "mean":
            np.divide(total, math.fsum(by_weight) if by_weight else len(ranks), out=total)
        np.copyto(result, total, casting="same_kind")


def factors(op: str, weights: Mapping[int, float] | None, ranks: Sequence[int]) -> list[float]:
    """The weights of `ranks` in a mean, scaled by a power of two so that the largest lies between 1/2 and 1.

    Scaled so, no product overflows and no digit is lost. []: all are equal, or `op` is no mean.
    """
    given = [weights[rank] for rank in ranks] if weights and op == "mean" else []
    if len(set(given)) < 2:
        return []
    exponent = math.frexp(max(given))[1]
    return [math.ldexp(weight, -exponent) for weight in given]
