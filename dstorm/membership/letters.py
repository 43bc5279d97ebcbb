"""Letters: a few bytes that a rank passes on as it enters a barrier, in the Put of its cell. Pure.

A letter stands behind the cell of its writer (dstorm/membership/status.py). It is whole when its check fits: its pieces
may arrive in any order. It holds:

    number   that of the barrier
    length   of the data that its writer has; a letter has the first MOST bytes of them
    check    BLAKE2b, of 64 bits, of all else

A compact message (dstorm/header.py) says as much in 40 bytes more, which each pair of ranks would send in each barrier.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from dstorm.transport import Bytes

ROOM = 256
"""The longest letter, in bytes."""
_HEAD = struct.Struct("<qq8s")
MOST = ROOM - _HEAD.size
"""The longest data that a letter has."""


class Letter(NamedTuple):
    """The content of a letter."""

    length: int
    """That of the data of its writer."""
    data: bytes
    """The data, or the first MOST bytes of them."""


def written(number: int, data: bytes) -> Bytes:
    """A new letter for barrier `number`, as bytes."""
    first = data[:MOST]
    return np.frombuffer(_HEAD.pack(number, len(data), _check(number, len(data), first)) + first, np.uint8)


def read(memory: Bytes, offset: int, number: int) -> Letter | None:
    """The letter for barrier `number` at `offset` of `memory`; None where it is not whole."""
    found, length, check = _HEAD.unpack(memory[offset : offset + _HEAD.size].tobytes())
    if found != number:
        return None
    data = memory[offset + _HEAD.size :][: min(length, MOST)].tobytes()
    return Letter(length, data) if check == _check(number, length, data) else None


def _check(number: int, length: int, data: bytes) -> bytes:
    return blake2b(struct.pack("<qq", number, length) + data, digest_size=8).digest()
