"""Notes that ranks leave for each other where failed ranks may come back. Each has a cell in the memory of every rank.

A note is a dict that JSON can express. Its writer replaces it as a whole. Its Put may tear: it counts once its checksum
fits, and is read again else.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from dstorm.transport import Window

_HEAD = struct.Struct("<QQQ")
"""How often the note was written, its length, and the checksum of both and of the text."""
_CELL_NBYTES = 1 << 16
LONGEST = _CELL_NBYTES - _HEAD.size
"""The longest note, as JSON in bytes."""
Note = Mapping[str, Any]
_NONE: Note = {}


def nbytes(size: int) -> int:
    """Bytes that the notes of `size` ranks take of each rank's memory. Pages that nobody writes take no memory."""
    return size * _CELL_NBYTES


class Board:
    """The notes of one rank to others, and of others to it. `window` has nbytes(size) bytes and no other use."""

    def __init__(self, window: Window, rank: int) -> None:
        self._window, self._rank = window, rank
        self._written = 0
        self._read: dict[int, tuple[bytes, Note]] = {}
        """The head and the note that were read last, by rank."""

    def holds(self, note: Note) -> bool:
        """Return whether `note` is short enough. Local."""
        return len(json.dumps(note).encode()) <= LONGEST

    def write(self, peer: int, note: Note) -> None:
        """Replace the note to `peer`. A longer one than `holds` allows is not written. One-sided."""
        text = json.dumps(note).encode()
        if len(text) > LONGEST:
            return
        self._written += 1
        fields = _HEAD.pack(self._written, len(text), 0)[:16]
        head = fields + zlib.crc32(fields + text).to_bytes(8, "little")
        self._window.put(np.frombuffer(head + text, np.uint8), peer, self._rank * _CELL_NBYTES)
        self._window.flush([peer])

    def read(self, peer: int) -> Note:
        """The newest whole note of `peer`; the one before while it is being written. Local."""
        start = peer * _CELL_NBYTES
        memory = self._window.memory
        head = memory[start : start + _HEAD.size].tobytes()
        before = self._read.get(peer, (bytes(_HEAD.size), _NONE))
        if head == before[0]:
            return before[1]
        _, length, check = _HEAD.unpack(head)
        text = memory[start + _HEAD.size :][: min(length, LONGEST)].tobytes()
        if zlib.crc32(head[:16] + text) != check:
            return before[1]
        self._read[peer] = head, json.loads(text)
        return self._read[peer][1]
