"""The wire format of sparse vectors: messages of rows are encoded, checked and decoded here. Pure.

There are two encodings for the same rows and values. A message has the shorter one:

    rows    the values of the rows; then their numbers, ascending, 32 bits each if n allows it, else 64
    whole   the values of all n rows; then a mark for each row, packed 8 to the byte, lowest bit first

A third one is for rows of several scatters, which leave for another host together:

    aged    as rows; then the age of each, 32 bits: by how many steps it is older than the message

The header of a message has a word for the encoding: the kind in the low byte, the number of rows above it.

The values of a row are an array of the dtype of the wire. With `scaled` they are a float32, the scale, and whole
numbers from -127 to 127 of 8 bits: a value is a number times the scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vol.rounding import narrow, scale, scaled_row, unscaled
from vol.sparse.rows import Rows, is_set_of_rows, listed
from vol.update import Array

Bytes = NDArray[np.uint8]

ROWS, WHOLE, AGED = 1, 2, 3
_AGE = np.dtype(np.uint32)
_COUNT_SHIFT = 8
_SPARE = 4
"""A buffer of Staging that grows gets 1 / _SPARE more than it needs."""


@dataclass(frozen=True)
class RowFormat:
    """The format of messages of rows of an array of shape (n, width)."""

    n: int
    width: int
    dtype: np.dtype[np.generic]
    """The dtype of the values in a message."""
    capacity: int
    """The largest number of rows in a message."""
    scaled: bool = False
    """Whether each row has a scale. `dtype` is int8 then."""

    @property
    def row(self) -> np.dtype[Any]:
        """The dtype of a row with its scale."""
        return scaled_row(self.width)

    @property
    def index(self) -> np.dtype[np.generic]:
        """The dtype of a row number."""
        return np.dtype(np.uint32 if self.n <= 1 << 32 else np.uint64)

    @property
    def row_nbytes(self) -> int:
        """The bytes of the values of one row."""
        return self.row.itemsize if self.scaled else self.width * self.dtype.itemsize

    @property
    def whole_nbytes(self) -> int:
        """The bytes of a message of all rows and a mark for each."""
        return self.n * self.row_nbytes + -(-self.n // 8)

    @property
    def slot_nbytes(self) -> int:
        """The bytes of the longest message."""
        return self.nbytes(self.capacity)

    def rows_nbytes(self, count: int) -> int:
        """Return the bytes of a message of `count` rows and their numbers."""
        return count * (self.row_nbytes + self.index.itemsize)

    def nbytes(self, count: int) -> int:
        """Return the bytes of a message of `count` rows in the shorter encoding."""
        return min(self.rows_nbytes(count), self.whole_nbytes)

    def aged_nbytes(self, count: int) -> int:
        """Return the bytes of a message of `count` rows, their numbers and their ages."""
        return self.rows_nbytes(count) + count * _AGE.itemsize

    @property
    def aged_capacity(self) -> int:
        """The largest number of rows in a message with ages: it must fit into a slot. It may be 0."""
        return self.slot_nbytes // self.aged_nbytes(1)

    def kind(self, count: int) -> int:
        """Return the encoding of a message of `count` rows: WHOLE if that is shorter, else ROWS."""
        return WHOLE if self.whole_nbytes < self.rows_nbytes(count) else ROWS


class Encoded(NamedTuple):
    """A message that is ready for a Put."""

    body: Bytes
    """The values."""
    tail: Bytes
    """The row numbers, or the marks."""
    nbytes: int
    """The bytes of both."""
    encoding: int
    """The encoding as the header has it: the kind and the number of rows."""


@dataclass(frozen=True, eq=False)
class RowValues:
    """Rows and their values, as a message holds them."""

    rows: Rows
    values: Array
    """The values, of the dtype of the wire, a view of the message; of float32, a copy, where rows have scales. The
    shape is (len(rows), width), or (n, width)."""
    whole: bool = False
    """Whether `values` holds all n rows."""
    ages: NDArray[np.uint32] | None = None
    """By how many steps each row is older than the message; None: by none."""

    def part(self, start: int, stop: int) -> Array:
        """Return the values of rows[start:stop]: a view, or a copy if `values` holds other rows too."""
        if not self.whole:
            return self.values[start:stop]
        if len(self.rows) == len(self.values):
            return self.values[start:stop]
        return self.values[self.rows[start:stop]]

    def without(self, rows: Rows) -> RowValues:
        """Return the rows that are not in `rows`: this object, or a copy."""
        if not len(rows) or not len(self.rows):
            return self
        place = np.searchsorted(rows, self.rows)
        place[place == len(rows)] = 0
        kept = rows[place] != self.rows
        if kept.all():
            return self
        values = self.values[self.rows[kept]] if self.whole else self.values[kept]
        return RowValues(self.rows[kept], values, ages=None if self.ages is None else self.ages[kept])

    def by_age(self) -> list[tuple[int, RowValues]]:
        """Return the rows of each age, the oldest first: pairs of the age and the rows, without ages."""
        if self.ages is None:
            return [(0, self)]
        order = np.argsort(self.ages, kind="stable")  # so the rows of each age stay ascending
        ages, firsts = np.unique(self.ages[order], return_index=True)
        parts = zip(ages.tolist(), np.split(order, firsts[1:]), strict=True)
        return [(age, RowValues(self.rows[part], self.values[part])) for age, part in parts][::-1]


class Staging:
    """Buffers for the messages of a scatter, reused by the next one. Local."""

    def __init__(self) -> None:
        self._buffers: list[Bytes] = []
        self._taken = 0

    def clear(self) -> None:
        """Free all that was taken."""
        self._taken = 0

    def take(self, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """Return an uninitialized array. Until `clear` no other call returns its memory."""
        nbytes = math.prod(shape) * dtype.itemsize
        if self._taken == len(self._buffers):
            self._buffers.append(np.empty(0, np.uint8))
        if self._buffers[self._taken].nbytes < nbytes:
            self._buffers[self._taken] = np.empty(nbytes + nbytes // _SPARE, np.uint8)
        piece = self._buffers[self._taken][:nbytes]
        self._taken += 1
        return piece.view(dtype).reshape(shape)


def encode(form: RowFormat, rows: Rows, values: Array, staging: Staging, saturate: bool = False) -> Encoded:
    """Return the message of `rows` of `values`, an array of shape (n, width). Local.

    `rows` is a set of 1 to form.capacity rows. The message may be a view of `staging`, or of `values` itself: change
    neither until it is sent. With `saturate` a value beyond the range of a narrower wire becomes the largest of that
    range. Without it: ValueError.
    """
    kind = form.kind(len(rows))
    encoding = len(rows) << _COUNT_SHIFT | kind
    body = values
    if kind == ROWS:
        body = staging.take((len(rows), form.width), values.dtype)
        np.take(values, rows, axis=0, out=body, mode="clip")  # the mode "raise" would buffer; a set is within range
    if values.dtype != form.dtype:
        wide, body = body, staging.take((len(body), form.row_nbytes), np.dtype(np.uint8))
        over = scale(wide, body.view(form.row)[:, 0]) if form.scaled else narrow(wide, body.view(form.dtype))
        if over is not None and not saturate:
            _refuse_overflow(form, rows, over[rows] if kind == WHOLE else over)
    tail = rows.astype(form.index).view(np.uint8) if kind == ROWS else _marks(rows, form.n)
    return Encoded(body.reshape(-1).view(np.uint8), tail, form.nbytes(len(rows)), encoding)


def encode_rows(form: RowFormat, content: RowValues) -> tuple[int, Bytes]:
    """Return the encoding and the payload of a message of `content`, values as they are read. A copy. Local.

    What is beyond the range of the wire becomes the largest of it. Of rows with ages there are at most
    form.aged_capacity, of others form.capacity.
    """
    count, values = len(content.rows), content.part(0, len(content.rows))
    encoded = np.empty((count, form.row_nbytes), np.uint8)
    if form.scaled:
        scale(values, encoded.view(form.row)[:, 0])
    else:
        narrow(values, encoded.view(form.dtype))
    numbers = content.rows.astype(form.index).view(np.uint8)
    if content.ages is not None:
        kind, body, tail = AGED, encoded, np.concatenate([numbers, content.ages.view(np.uint8)])
    elif (kind := form.kind(count)) == ROWS:
        body, tail = encoded, numbers
    else:
        body, tail = np.zeros((form.n, form.row_nbytes), np.uint8), _marks(content.rows, form.n)
        body[content.rows] = encoded
    return count << _COUNT_SHIFT | kind, np.concatenate([body.reshape(-1), tail])


def as_read(form: RowFormat, values: Array) -> Array:
    """Return `values`, of shape (count, width), as a receiver reads them from a message. Local.

    What is beyond the range of the wire is the largest of it. It may be `values` itself.
    """
    if values.dtype == form.dtype:
        return values
    if form.scaled:
        rows = np.empty(len(values), form.row)
        scale(values, rows)
        return unscaled(rows)
    out = np.empty(values.shape, form.dtype)
    narrow(values, out)
    return out


def _marks(rows: Rows, n: int) -> Bytes:
    if len(rows) == n:
        return np.packbits(np.ones(n, bool), bitorder="little")
    marks = np.zeros(n, bool)
    marks[rows] = True
    return np.packbits(marks, bitorder="little")


def _refuse_overflow(form: RowFormat, rows: Rows, over: NDArray[np.bool_]) -> None:
    bad = rows[over.any(axis=1)]
    if bad.size:
        largest = f"{form.dtype}, with a scale of float32" if form.scaled else form.dtype
        raise ValueError(f"rows hold values beyond the largest of {largest}: {listed(bad)}")


def decode(form: RowFormat, encoding: int, payload: Bytes) -> RowValues | None:
    """Return the rows and values that `payload` holds, the values as views; None if it is invalid. Local."""
    count, kind = encoding >> _COUNT_SHIFT, encoding & (1 << _COUNT_SHIFT) - 1
    nbytes = form.aged_nbytes(count) if kind == AGED else form.nbytes(count)
    if not 0 < count <= form.capacity or kind not in (AGED, form.kind(count)) or payload.nbytes != nbytes:
        return None
    if kind != WHOLE:
        split, end = count * form.row_nbytes, form.rows_nbytes(count)
        rows = payload[split:end].view(form.index).astype(np.intp)  # check a copy, which the sender cannot overwrite
        ages = payload[end:].view(_AGE) if kind == AGED else None
        return RowValues(rows, _values(form, payload[:split]), ages=ages) if is_set_of_rows(rows, form.n) else None
    split = form.n * form.row_nbytes
    marks = np.unpackbits(payload[split:], bitorder="little")
    rows = np.flatnonzero(marks.view(bool))
    if len(rows) != count or rows[-1] >= form.n:
        return None
    return RowValues(rows, _values(form, payload[:split]), whole=True)


def _values(form: RowFormat, payload: Bytes) -> Array:
    return unscaled(payload.view(form.row)) if form.scaled else payload.view(form.dtype).reshape(-1, form.width)
