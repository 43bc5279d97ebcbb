"""The cells in which ranks publish their words, as bytes. Pure.

Each rank has a cell in the memory of every rank. It alone writes the cell, by Puts, which may tear. A cell is read only
if it is whole. It holds:

    name     the name of the collective call that the rank is in, cut to NAME_NBYTES
    body     the masks of ranks, the generation, the number of heartbeats, the flags and the checksum of the name before
    header   the other numbers of the word, and the checksums of name and body
"""

from __future__ import annotations

import struct
import zlib

from dstorm import header
from dstorm.header import WHOLE
from dstorm.membership.decision import Generation, Word
from dstorm.transport import Bytes

NAME_NBYTES = 64
_LINE = 64
_NUMBERS = struct.Struct("<5q2I")
_MASKS = 4
_CRC_BITS = 30


class Cells:
    """The layout of the cells of `size` ranks, and what was read from them.

    The first cell begins at byte `start`, and each other one `stride` bytes, by default its length, after the one
    before.
    """

    def __init__(self, size: int, start: int = 0, stride: int = 0) -> None:
        self._mask_bits = 8 * -(-size // 8)
        self._masks_nbytes = _MASKS * self._mask_bits // 8
        self._body_nbytes = self._masks_nbytes + _NUMBERS.size
        self._header_at = NAME_NBYTES + -(-self._body_nbytes // _LINE) * _LINE
        self.nbytes = self._header_at + header.NBYTES
        """Length of one cell."""
        self._start, self._stride = start, stride or self.nbytes
        self._read: dict[int, tuple[bytes, Word]] = {}
        """The bytes and the word that were read last, by rank, as most polls find the same."""

    def at(self, rank: int) -> int:
        """Return where the cell of `rank` begins. Pure."""
        return rank * self._stride + self._start

    def write(self, cell: Bytes, word: Word, name: bytes) -> None:
        """Write `word` and `name` into `cell`. Local."""
        masks = word.failed
        for place, mask in enumerate((word.lost, word.awaited, word.evicted), 1):
            masks |= mask << place * self._mask_bits
        numbers = _NUMBERS.pack(*word.generation, word.heartbeats, word.flags, word.before)
        body = masks.to_bytes(self._masks_nbytes, "little") + numbers
        view = cell.data
        view[: NAME_NBYTES + len(body)] = name.ljust(NAME_NBYTES, b"\0") + body
        checks = zlib.crc32(name) << _CRC_BITS | _short(body)
        header.write(view, self._header_at, word.entered, word.steps, WHOLE, checks, word.decided)

    def read(self, memory: Bytes, rank: int) -> Word | None:
        """The word of `rank` in `memory`; None where it is being written, or never was. Local."""
        start = self.at(rank)
        found = memory.data[start : start + self.nbytes].tobytes()
        before = self._read.get(rank)
        if before is not None and before[0] == found:
            return before[1]
        seen = header.read(memoryview(found), self._header_at)
        if seen is None or seen.state != WHOLE:
            return None
        body = found[NAME_NBYTES : NAME_NBYTES + self._body_nbytes]
        if _short(body) != seen.encoding & (1 << _CRC_BITS) - 1:
            return None
        masks = int.from_bytes(body[: self._masks_nbytes], "little")
        failed, lost, awaited, evicted = (
            masks >> place * self._mask_bits & (1 << self._mask_bits) - 1 for place in range(_MASKS)
        )
        *generation, heartbeats, flags, before = _NUMBERS.unpack_from(body, self._masks_nbytes)
        checksum = seen.encoding >> _CRC_BITS
        word = Word(
            seen.number, seen.step, failed, seen.nbytes, lost, checksum, heartbeats, flags, awaited, evicted,
            Generation(*generation), before,
        )  # fmt: skip
        self._read[rank] = found, word
        return word

    def name(self, memory: Bytes, rank: int, checksum: int) -> str:
        """The name of the call in the cell of `rank`, whose word has this `checksum` of the name. Local."""
        name = memory[self.at(rank) :][:NAME_NBYTES].tobytes().rstrip(b"\0")
        return name.decode(errors="replace") if zlib.crc32(name) == checksum else "another call"


def _short(body: bytes) -> int:
    return zlib.crc32(body) & (1 << _CRC_BITS) - 1
