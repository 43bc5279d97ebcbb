"""Rounded values: float16, or integers of 8 bits with a scale for each row. Whole arrays as messages. Pure."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vol.update import Array

Bytes = NDArray[np.uint8]

BLOCK = 64
"""The elements of a row of a whole array."""
_LARGEST_STEP = 127
"""Of the integers that a scale is multiplied with. -128 has no counterpart."""


class Rounding:
    """The form in which messages hold whole arrays of `size` elements of `dtype`: as float16, or with `wire` "int8" as
    rows of BLOCK integers and their scale. Local."""

    def __init__(self, wire: str, dtype: np.dtype[Any], size: int) -> None:
        self._dtype, self._size = dtype, size
        self._row = scaled_row(BLOCK) if wire == "int8" else None
        self._rows = -(-size // BLOCK)
        self.nbytes = 2 * size if self._row is None else self._rows * self._row.itemsize
        """The bytes of a message."""

    def encoded(self, values: Array) -> Bytes:
        """Return the message of `values`, flat: a copy. What is beyond the range of the wire becomes the largest of
        it."""
        out = np.empty(self.nbytes, np.uint8)
        if self._row is None:
            narrow(values, out.view(np.float16))
            return out
        table = np.zeros((self._rows, BLOCK), self._dtype)
        table.reshape(-1)[: self._size] = values
        scale(table, out.view(self._row))
        return out

    def decoded(self, payload: Bytes) -> Array | None:
        """Return the values that a message holds: flat, a copy. None: it has another length."""
        if payload.nbytes != self.nbytes:
            return None
        if self._row is None:
            return payload.view(np.float16).astype(self._dtype)
        with np.errstate(over="ignore", invalid="ignore"):  # a message that is being overwritten holds anything
            values: Array = unscaled(payload.view(self._row)).reshape(-1)[: self._size].astype(self._dtype, copy=False)
        return values


def scaled_row(width: int) -> np.dtype[Any]:
    """Return the dtype of a row of `width` integers with its scale."""
    return np.dtype([("scale", np.float32), ("steps", np.int8, (width,))])


def narrow(values: Array, out: Array) -> NDArray[np.bool_] | None:
    """Round `values` into `out`, of a narrower dtype. Local.

    A finite value beyond the range of that dtype becomes its largest. Return a mask of these values, or None if all are
    in range.
    """
    with np.errstate(over="ignore", under="ignore"):
        out[...] = values
    over = np.isinf(out)
    if not over.any():
        return None
    over &= np.isfinite(values)
    out[over] = np.copysign(np.finfo(out.dtype).max, values[over])
    return over


def scale(values: Array, out: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Write each row of `values` into `out`, of `scaled_row`, as a scale and integers. Local.

    A row that holds NaN or infinity becomes NaN. A finite row whose scale is beyond float32 becomes as large as can be.
    Return a mask of such rows, of shape (len(values), 1), or None.
    """
    peaks = np.abs(values).max(axis=1)
    with np.errstate(over="ignore", under="ignore"):
        scales = (peaks / _LARGEST_STEP).astype(np.float32)
    largest = np.finfo(np.float32).max / 128  # a number of 8 bits times it is finite
    over = (scales > largest) & np.isfinite(peaks)
    scales[over] = largest
    scales[~np.isfinite(scales)] = np.nan
    out["scale"] = scales
    divisors = np.where(scales > 0, scales, np.float32(np.inf)).astype(values.dtype)  # a row of zeros, or of NaN
    with np.errstate(invalid="ignore", under="ignore"):
        steps = np.clip(np.rint(values / divisors[:, None]), -_LARGEST_STEP, _LARGEST_STEP)
    out["steps"] = np.nan_to_num(steps, nan=0, copy=False)
    return over[:, None] if over.any() else None


def unscaled(rows: NDArray[Any]) -> Array:
    """Return the values of `rows`, of `scaled_row`, as float32: a copy. Local."""
    values: Array = rows["steps"] * rows["scale"][:, None]
    return values
