"""The self-checking header: 64 bytes that describe what a cell of remote memory holds. Pure: no MPI, no clock.

A Put that races with a load may tear anywhere, even inside 8 bytes. So a header ends in a 64-bit hash of its other
fields, and a mix of two headers is never taken for one. The hash is Python's of a tuple of numbers: it is not salted,
and is the same in every process of one build of Python.

A compact message is a header and a payload in one Put. Its pieces may arrive in any order. So the check of its header
covers the payload, too, and it is whole when the check fits. That check is BLAKE2b, of 64 bits: Python's hash of
numbers takes -1 for -2, and CRC-32 is too short for something that is looked at while it arrives. The upper bytes of
its state are an acknowledgement that goes with it.

The header of a checked message holds a check of its payload, in the upper bytes of its state. It comes in a Put of its
own, and can be read before its payload has come. Who has copied the payload knows by the check whether it is whole.

Zeroed memory reads as EMPTY.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from hashlib import blake2b, sha1
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NBYTES = 64
"""Length of a header in bytes: one cache line."""

EMPTY, WRITING, WHOLE, DONE = range(4)
"""States of a cell: never written; payload being written; payload complete, but for one with a check, of which only
the header is; its writer has closed."""
COMPACT = 4
"""The lowest byte of the state of a compact message. It reads as WHOLE once all of it is there, and as torn before."""
COMPACT_NBYTES = 4096
"""The longest payload of a compact message. Its check takes 6 us, less than a flush saves."""
_CHECKED = 5
"""The lowest byte of the state of a checked message, which reads as WHOLE."""

_WORDS = struct.Struct("@qqqqqddq")
"""The byte order is the machine's own, as in the arrays that ranks exchange; it is packed in half the time."""
_CHECK_AT = NBYTES - 8
"""Offset of the hash in a header."""
_FIELDS = struct.Struct("@qqqqqdd")


class Header(NamedTuple):
    """The fields of a header, without the hash."""

    number: int
    """Number of the message on its edge, from 1; in an acknowledgement, the newest number taken."""
    step: int
    """Step of the writer."""
    state: int
    """EMPTY, WRITING, WHOLE or DONE."""
    encoding: int = 0
    """How to read the payload; the layer above defines it."""
    nbytes: int = 0
    """Length of the payload in bytes."""
    weight: float = 1.0
    """Weight of the message, as the caller gave it."""
    share: float = 0.0
    """The part of the sender's mass that goes with the message (push-sum)."""
    check: int | None = None
    """The check of the payload of a checked message, which is whole where `payload_check` is the same."""
    taken: int = 0
    """The newest message of its receiver that the sender of a compact message acknowledges with it; 0: none."""


BLANK = Header(0, 0, EMPTY, 0, 0, 0.0, 0.0)


def write(
    buffer: memoryview, offset: int, number: int, step: int, state: int, encoding: int = 0, nbytes: int = 0,
    weight: float = 1.0, share: float = 0.0,
) -> None:  # fmt: skip
    """Write a header of these fields and its hash at `offset` of `buffer`. Local.

    struct.error: a field exceeds 64 bits.
    """
    check = hash((number, step, state, encoding, nbytes, weight, share))
    _WORDS.pack_into(buffer, offset, number, step, state, encoding, nbytes, weight, share, check)


def write_compact(buffer: memoryview, message: Header) -> None:
    """Write the header of a compact message at the start of `buffer`, which holds its payload behind. Local."""
    number, step, _, encoding, nbytes, weight, share, _, taken = message
    fields = (number, step, taken << 8 | COMPACT, encoding, nbytes, weight, share)
    _WORDS.pack_into(buffer, 0, *fields, _compact_check(fields, nbytes, buffer, 0))


def _compact_check(fields: tuple[float, ...], nbytes: int, buffer: memoryview, offset: int) -> int:
    """The check of the compact message at `offset`. The header in the buffer may be another one by now."""
    check = blake2b(_FIELDS.pack(*fields), digest_size=NBYTES - _CHECK_AT)
    check.update(buffer[offset + NBYTES : offset + NBYTES + nbytes])
    return int.from_bytes(check.digest(), sys.byteorder, signed=True)


def payload_check(payload: NDArray[np.uint8]) -> int:
    """Return the check of a payload: 55 bits of its SHA-1, which processors compute faster than BLAKE2b. Local.

    Linear checks (CRCs, sums of words times random numbers) do not suffice: whether a mixture of two messages passes
    them depends on the difference of the two alone, and trainings repeat differences.
    """
    return int.from_bytes(sha1(payload.data, usedforsecurity=False).digest()[:7], "big") >> 1


def checked(check: int) -> int:
    """The state of the header of a message whose payload has this check. Pure."""
    return check << 8 | _CHECKED


Write = Callable[..., None]
"""A function of the fields of a header that Puts it where it belongs."""


def writer(prepared: Callable[[NDArray[np.uint8], int, int], Callable[[], object]], peer: int, offset: int) -> Write:
    """Return a function that Puts a header of its arguments, as `write` has them, to `offset` of `peer`. Local.

    `prepared(source, peer, offset)`: that of the window.
    """
    cell = np.zeros(NBYTES, np.uint8)
    buffer, put, pack = cell.data, prepared(cell, peer, offset), _WORDS.pack_into

    def write_and_put(
        number: int, step: int, state: int, encoding: int = 0, nbytes: int = 0,
        weight: float = 1.0, share: float = 0.0,
    ) -> None:  # fmt: skip
        """Put a header of these fields. One-sided."""
        check = hash((number, step, state, encoding, nbytes, weight, share))  # as `write`, without a call
        # pack_into zeroes all bytes first: in a mapped slot a receiver could read the hash 0 of half a header
        pack(buffer, 0, number, step, state, encoding, nbytes, weight, share, check)
        put()

    return write_and_put


def read(buffer: memoryview, offset: int) -> Header | None:
    """The header at `offset` of `buffer`, or None where it is torn. Local."""
    return _checked(buffer, offset)[1]


def _checked(buffer: memoryview, offset: int) -> tuple[int, Header | None]:
    """The hash at the end of a header, and the header, or None where they do not fit."""
    words = _WORDS.unpack_from(buffer, offset)
    fields, check = words[:-1], words[-1]
    found = tuple.__new__(Header, (*fields, None, 0))  # in half the time of Header(...)
    kind, rest = found.state & 0xFF, found.state >> 8
    if kind == COMPACT:
        nbytes = found.nbytes
        is_whole = 0 <= nbytes <= COMPACT_NBYTES and check == _compact_check(fields, nbytes, buffer, offset)
        return check, found._replace(state=WHOLE, taken=rest) if is_whole else None
    if check == hash(fields):
        return check, found._replace(state=WHOLE, check=rest) if kind == _CHECKED else found
    # Memory starts as zeros, so a header that was never written has no hash.
    return check, BLANK if check == 0 and found == BLANK else None


class Watched:
    """The header at `offset` of `buffer`, this rank's memory, which a peer writes again and again. Local.

    It is unpacked only where its hash has changed: two headers with one hash are one header. The hash that is kept was
    unpacked with the header. One that was read before may belong to an older header, or be 0 while a header arrives: it
    can come again.
    """

    __slots__ = ("_buffer", "_check", "_known", "_offset")

    def __init__(self, buffer: memoryview, offset: int) -> None:
        self._buffer, self._offset = buffer, offset
        self._check = buffer[offset + _CHECK_AT : offset + NBYTES].cast("q")
        self._known: tuple[int, Header | None] = 0, BLANK
        """The hash of the header that was read last, and that header: one tuple, as any thread may read."""

    def read(self) -> Header | None:
        """The header as it is now, or None where it is torn."""
        known = self._known
        if self._check[0] == known[0]:
            return known[1]
        read = _checked(self._buffer, self._offset)
        if read[1] is not None:
            self._known = read
        return read[1]
