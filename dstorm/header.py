"""The self-checking header: 64 bytes that describe what a cell of remote memory holds. Pure: no MPI, no clock.

A Put that races with a load may tear anywhere, even inside 8 bytes. So a header ends in a 64-bit hash of its other
fields, and a mix of two headers is never taken for one. The hash is Python's of a tuple of numbers: it is not salted,
and is the same in every process of one build of Python.

Zeroed memory reads as EMPTY.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

NBYTES = 64
"""Length of a header in bytes: one cache line."""

EMPTY, WRITING, WHOLE, DONE = range(4)
"""States of a cell: never written; payload being written; payload complete; its writer has closed."""

_WORDS = struct.Struct("<qqqqqddq")


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


BLANK = Header(0, 0, EMPTY, 0, 0, 0.0, 0.0)


Fields = tuple[int, int, int, int, int, float, float]
"""The fields of a Header as a plain tuple, which is made in a third of the time."""


def write(buffer: memoryview, offset: int, header: Fields) -> None:
    """Write `header` and its hash at `offset` of `buffer`. Local. struct.error: a field exceeds 64 bits."""
    _WORDS.pack_into(buffer, offset, *header, hash(header))


def read(buffer: memoryview, offset: int) -> Header | None:
    """The header at `offset` of `buffer`, or None where it is torn. Local."""
    words = _WORDS.unpack_from(buffer, offset)
    fields = words[:-1]
    if words[-1] == hash(fields):
        return Header._make(fields)
    # Memory starts as zeros, so a header that was never written has no hash.
    return BLANK if words[-1] == 0 and fields == BLANK else None
