"""A store: one file of columns that is mapped into memory.

    columns      arrays, one after another, each at a multiple of ALIGNMENT
    description  JSON: version, kind and source; dtype and length of each column; facts about the columns; the CRC-32
                 of each block of BLOCK_NBYTES
    tail         SHA-256 of the description, its length as 8 bytes (little-endian), MAGIC

The ranks of a host write a store together. One rank creates it in the size of its columns. Each writes its pieces, and
computes the checksums of some blocks. One rank seals it with description and tail. A file without a tail is no store.

Reading checks the description, the size of the file and the checksums of some blocks. The ranks of a host share the
blocks; each reads up to VERIFY_NBYTES, which takes at most a quarter of a second with CRC-32 at some 4 GB/s. So a store
below ranks x VERIFY_NBYTES is checked completely. Of a larger one the blocks checked are spread evenly over it.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.files import heartbeats

VERSION: Final = 3
MAGIC: Final = b"MALT col"
ALIGNMENT: Final = 64
BLOCK_NBYTES: Final = 1 << 22
VERIFY_NBYTES: Final = 1 << 30
MAX_DESCRIPTION_NBYTES: Final = 1 << 26
"""The longest description that is read. It would belong to a store of some 20 TB."""
DAMAGES: Final = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""The errors that reading a damaged store, or another file, may raise."""

_LENGTH_NBYTES: Final = 8
_DIGEST_NBYTES: Final = hashlib.sha256().digest_size
_TAIL_NBYTES: Final = _DIGEST_NBYTES + _LENGTH_NBYTES + len(MAGIC)

Piece = tuple[str, int, NDArray[Any]]
"""(name of a column, first element, values): values of consecutive elements."""


@dataclass(frozen=True)
class Contents:
    """The contents of a store, without the values."""

    columns: Mapping[str, Sequence[Any]]
    """By name: dtype as NumPy writes it, for example "<f4", and length."""
    facts: Mapping[str, Any]
    """Facts about the columns, as a JSON-like value."""

    def places(self) -> dict[str, tuple[np.dtype[Any], int, int]]:
        """Return dtype, length and first byte of each column, by name. Local. ValueError, TypeError: a bad dtype."""
        places, begin = {}, 0
        for name, (kind, length) in self.columns.items():
            dtype = np.dtype(kind)
            if dtype.kind not in "ifS" or dtype.itemsize < 1 or not isinstance(length, int) or length < 0:
                raise ValueError(f"column {name} is of {length!r} {dtype}")
            begin += -begin % ALIGNMENT
            places[name] = dtype, length, begin
            begin += length * dtype.itemsize
        return places

    def nbytes(self) -> int:
        """Return the bytes of all columns, with the padding between them. Local."""
        return max(begin + length * dtype.itemsize for dtype, length, begin in self.places().values())

    def views(self, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """Return the columns, by name, as views of `buffer`, the bytes of all columns. Local."""
        return {
            name: buffer[begin : begin + length * dtype.itemsize].view(dtype)
            for name, (dtype, length, begin) in self.places().items()
        }


@dataclass(frozen=True, eq=False)
class Store:
    """The columns of a store. They are read-only: views of a mapped file, or of memory of this process."""

    contents: Contents
    columns: Mapping[str, NDArray[Any]]
    checksums: Sequence[int]
    is_mapped: bool

    def identity(self) -> str:
        """Return a hash of facts, dtypes, lengths and checksums: the same for the same columns and facts. Local."""
        text = json.dumps([vars(self.contents), self.checksums], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def create(path: str, contents: Contents) -> None:
    """Create the file, in the size of its columns. Local. Raises OSError."""
    with open(path, "xb") as file:
        file.truncate(contents.nbytes())


def write(path: str, contents: Contents, pieces: Iterable[Piece]) -> None:
    """Write pieces of the columns, and sync them to the disk. Local. Raises OSError.

    It uses write() and not a map: on a full disk a map ends the process with SIGBUS.
    """
    places = contents.places()
    with heartbeats.opened(path, "r+b") as file:
        for name, first, values in pieces:
            dtype, _, begin = places[name]
            file.seek(begin + first * dtype.itemsize)
            file.write(np.ascontiguousarray(values, dtype).view(np.uint8).data)
        _sync(file)


def in_memory(contents: Contents, pieces: Iterable[Piece]) -> Store:
    """Return a store in memory of this process, without a file. Local."""
    buffer = np.zeros(contents.nbytes(), np.uint8)
    columns = contents.views(buffer)
    for name, first, values in pieces:
        columns[name][first : first + values.size] = values
        heartbeats.give()
    buffer.flags.writeable = False
    return Store(contents, contents.views(buffer), take_checksums(buffer), is_mapped=False)


def map_columns(path: str, contents: Contents) -> NDArray[np.uint8]:
    """Return the bytes of all columns, mapped read-only. Local. Raises OSError. ValueError: the file is too short."""
    return np.asarray(np.memmap(path, np.uint8, "r", shape=(contents.nbytes(),)))


def mapped(buffer: NDArray[np.uint8], contents: Contents, checksums: Sequence[int]) -> Store:
    """Return the store of a mapped file: its columns are views of `buffer`. Local."""
    return Store(contents, contents.views(buffer), checksums, is_mapped=True)


def take_checksums(buffer: NDArray[np.uint8], part: int = 0, parts: int = 1) -> list[int]:
    """Return the checksums of every `parts`-th block from block `part` on. Local."""
    return [_checksum(buffer, number) for number in _numbers(buffer)[part::parts]]


def seal(path: str, kind: str, source: Any, contents: Contents, checksums: Sequence[int]) -> None:
    """Append description and tail, which makes the file a store. Local. Raises OSError.

    `kind`: the format of the store. `source`: the state of the file that was parsed, as a JSON-like value.
    """
    about = {"version": VERSION, "kind": kind, "source": source, "checksums": checksums}
    text = json.dumps({**about, **vars(contents)}).encode()
    with open(path, "ab") as file:
        file.write(text + hashlib.sha256(text).digest() + len(text).to_bytes(_LENGTH_NBYTES, "little") + MAGIC)
        _sync(file)


def read(path: str, kind: str, source: Any, part: int = 0, parts: int = 1) -> Store | None:
    """Return the store in a file; None if it is damaged, of another kind or not parsed from `source`. Local.

    This checks the checksums of share `part` of `parts`.
    """
    try:
        contents, checksums = _read_description(path, kind, source)
        buffer = map_columns(path, contents)
        if _is_damaged(buffer, checksums, part, parts):
            return None
    except DAMAGES:
        return None
    return mapped(buffer, contents, checksums)


def _read_description(path: str, kind: str, source: Any) -> tuple[Contents, list[int]]:
    """Return the contents and the checksums. Raises one of DAMAGES."""
    with open(path, "rb") as file:
        end = file.seek(-_TAIL_NBYTES, os.SEEK_END)
        tail = file.read(_TAIL_NBYTES)
        nbytes = int.from_bytes(tail[_DIGEST_NBYTES : -len(MAGIC)], "little")
        if not tail.endswith(MAGIC) or nbytes > MAX_DESCRIPTION_NBYTES:
            raise ValueError("no tail")
        begin = file.seek(end - nbytes)
        text = file.read(nbytes)
    if hashlib.sha256(text).digest() != tail[:_DIGEST_NBYTES]:
        raise ValueError("a damaged description")
    about = json.loads(text)
    if [about[key] for key in ("version", "kind", "source")] != [VERSION, kind, source]:
        raise ValueError("another version's, or another file's")
    contents = Contents(about["columns"], about["facts"])
    if contents.nbytes() != begin:
        raise ValueError("the columns are not as described")
    return contents, about["checksums"]


def _is_damaged(buffer: NDArray[np.uint8], checksums: Sequence[int], part: int, parts: int) -> bool:
    """Return whether a block of share `part` of `parts` has changed. Reads up to VERIFY_NBYTES."""
    numbers = _numbers(buffer)
    if len(numbers) != len(checksums):
        return True
    share = numbers[part::parts]
    stride = -(-len(share) // max(1, VERIFY_NBYTES // BLOCK_NBYTES))
    return any(_checksum(buffer, number) != checksums[number] for number in share[:: max(1, stride)])


def _numbers(buffer: NDArray[np.uint8]) -> range:
    return range(-(-buffer.size // BLOCK_NBYTES))


def _checksum(buffer: NDArray[np.uint8], number: int) -> int:
    """The checksum of a block."""
    found = zlib.crc32(buffer[number * BLOCK_NBYTES : (number + 1) * BLOCK_NBYTES].data)
    heartbeats.give()
    return found


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
