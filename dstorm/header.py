"""The self-checking stamp: 64 bytes that tell what a cell of remote memory holds.

A Put that races with a load may tear anywhere, even inside 8 bytes, so a stamp carries a 64-bit mix of all its
other fields: bytes of two stamps never pass for one. The mix is Python's hash of a tuple of numbers, which is not
salted and is the same in every process of one build of Python.

Zeroed memory reads as EMPTY. Pure: no MPI, no clock.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

NBYTES = 64
"""The length of a stamp: one cache line."""

EMPTY, WRITING, WHOLE, DONE = range(4)
"""State of a cell: never written; payload in motion; payload complete; its writer has left."""

_WORDS = struct.Struct("<qqqqqddq")


class Header(NamedTuple):
    """What a cell says of itself."""

    number: int
    """The message's number on its edge, from 1; in an acknowledgement, the newest number taken."""
    step: int
    """The writer's step."""
    state: int
    """EMPTY, WRITING, WHOLE or DONE."""
    encoding: int = 0
    """How the payload is to be read: the business of the layer above."""
    nbytes: int = 0
    """Length of the payload in bytes."""
    weight: float = 1.0
    """The message's weight, as the caller gave it."""
    share: float = 0.0
    """The part of its sender's mass that goes with the message (push-sum)."""


BLANK = Header(0, 0, EMPTY, 0, 0, 0.0, 0.0)


Fields = tuple[int, int, int, int, int, float, float]
"""What a Stamp holds, as a plain tuple, which is made in a third of the time."""


def write(buffer: memoryview, offset: int, header: Fields) -> None:
    """Lay `header` down at `offset` of `buffer`. Local. struct.error: a field beyond 64 bits."""
    _WORDS.pack_into(buffer, offset, *header, hash(header))


def read(buffer: memoryview, offset: int) -> Header | None:
    """The stamp at `offset` of `buffer`, or None where it is torn. Local."""
    words = _WORDS.unpack_from(buffer, offset)
    fields = words[:-1]
    if words[-1] == hash(fields):
        return Header._make(fields)
    # Never written: the one value whose own check is not stored, because memory starts as zeros.
    return BLANK if words[-1] == 0 and fields == BLANK else None
