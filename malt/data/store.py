"""A store: one file of columns, which is mapped into memory.

    columns      arrays, one after the other, each from a multiple of ALIGNMENT on
    description  JSON: version, kind and source; dtype and length of each column; facts about them; CRC-32 of each
                 block of BLOCK_NBYTES of all columns
    tail         SHA-256 of the description, its length as 8 bytes (little-endian), MAGIC

The ranks of one host write a store together: one creates it in the size of its columns; each writes its pieces; each
takes the checksums of some blocks; one seals it with description and tail. A file without a tail is no store.

Reading checks the description, the size of the file and, by reading them, up to VERIFY_NBYTES of blocks on each rank
(the ranks of a host share the blocks out among them): with CRC-32 at some 4 GB/s that is a quarter of a second at most.
Of a store below ranks x VERIFY_NBYTES it is every block. Of a larger one it is blocks spread evenly over it.
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

VERSION: Final = 3
MAGIC: Final = b"MALT col"
ALIGNMENT: Final = 64
BLOCK_NBYTES: Final = 1 << 22
VERIFY_NBYTES: Final = 1 << 30
MAX_DESCRIPTION_NBYTES: Final = 1 << 26
"""A longer description is not read: this one would be of some 20 TB."""
DAMAGES: Final = (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What the reading of a file that is no store, or a damaged one, ends in."""

_LENGTH_NBYTES: Final = 8
_DIGEST_NBYTES: Final = hashlib.sha256().digest_size
_TAIL_NBYTES: Final = _DIGEST_NBYTES + _LENGTH_NBYTES + len(MAGIC)

Piece = tuple[str, int, NDArray[Any]]
"""Values of the column of that name from that element on."""


@dataclass(frozen=True)
class Contents:
    """What is in a store."""

    columns: Mapping[str, Sequence[Any]]
    """By name: dtype as NumPy writes it, "<f4" for one, and length."""
    facts: Mapping[str, Any]
    """About the columns: what JSON can say."""

    def places(self) -> dict[str, tuple[np.dtype[Any], int, int]]:
        """By name: dtype, length and the first byte. ValueError, TypeError: there can be no such column."""
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
        """The size of all columns together, with what is between them."""
        return max(begin + length * dtype.itemsize for dtype, length, begin in self.places().values())

    def views(self, buffer: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        """The columns in the bytes of all."""
        return {
            name: buffer[begin : begin + length * dtype.itemsize].view(dtype)
            for name, (dtype, length, begin) in self.places().items()
        }


@dataclass(frozen=True, eq=False)
class Store:
    """The columns that were parsed: read-only views of a map, or of memory of this process."""

    contents: Contents
    columns: Mapping[str, NDArray[Any]]
    checksums: Sequence[int]
    is_mapped: bool

    def identity(self) -> str:
        """The same where, and only where, the columns and the facts are the same."""
        reports = json.dumps([vars(self.contents), self.checksums], sort_keys=True)
        return hashlib.sha256(reports.encode()).hexdigest()


def create(path: str, contents: Contents) -> None:
    """Make the file with columns of their final sizes. Local. Raises OSError."""
    with open(path, "xb") as file:
        file.truncate(contents.nbytes())


def write(path: str, contents: Contents, pieces: Iterable[Piece]) -> None:
    """Write pieces of the columns through to the disk. Local. Raises OSError.

    With write() and not through a map: on a full disk a map ends the process with SIGBUS.
    """
    places = contents.places()
    with open(path, "r+b") as file:
        for name, first, values in pieces:
            dtype, _, begin = places[name]
            file.seek(begin + first * dtype.itemsize)
            file.write(np.ascontiguousarray(values, dtype).view(np.uint8).data)
        _sync(file)


def in_memory(contents: Contents, pieces: Iterable[Piece]) -> Store:
    """A store without a file: memory of this process. Local."""
    buffer = np.zeros(contents.nbytes(), np.uint8)
    columns = contents.views(buffer)
    for name, first, values in pieces:
        columns[name][first : first + values.size] = values
    buffer.flags.writeable = False
    return Store(contents, contents.views(buffer), take_checksums(buffer), is_mapped=False)


def map_columns(path: str, contents: Contents) -> NDArray[np.uint8]:
    """A read-only map of all columns. Local. Raises OSError; ValueError where the file is too short."""
    return np.asarray(np.memmap(path, np.uint8, "r", shape=(contents.nbytes(),)))


def mapped(buffer: NDArray[np.uint8], contents: Contents, checksums: Sequence[int]) -> Store:
    """The store of which `buffer` is the map. Local."""
    return Store(contents, contents.views(buffer), checksums, is_mapped=True)


def take_checksums(buffer: NDArray[np.uint8], part: int = 0, parts: int = 1) -> list[int]:
    """The checksums of every `parts`-th block from block `part` on. Local."""
    return [zlib.crc32(_block(buffer, number).data) for number in _numbers(buffer)[part::parts]]


def seal(path: str, kind: str, source: Any, contents: Contents, checksums: Sequence[int]) -> None:
    """Describe the file, which makes it a store. Local. Raises OSError.

    `kind`: what it is a store of. `source`: which state of which file was parsed, in JSON.
    """
    about = {"version": VERSION, "kind": kind, "source": source, "checksums": checksums}
    text = json.dumps({**about, **vars(contents)}).encode()
    with open(path, "ab") as file:
        file.write(text + hashlib.sha256(text).digest() + len(text).to_bytes(_LENGTH_NBYTES, "little") + MAGIC)
        _sync(file)


def read(path: str, kind: str, source: Any, part: int = 0, parts: int = 1) -> Store | None:
    """The store in a file if it is whole, of that kind and parsed from `source`, else None. Local.

    Of the checksums, this checks those of share `part` of `parts`.
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
    """Raises one of DAMAGES."""
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
    """Whether a block of share `part` of `parts`, as far as VERIFY_NBYTES go, is not what it was."""
    numbers = _numbers(buffer)
    if len(numbers) != len(checksums):
        return True
    share = numbers[part::parts]
    stride = -(-len(share) // max(1, VERIFY_NBYTES // BLOCK_NBYTES))
    return any(zlib.crc32(_block(buffer, number).data) != checksums[number] for number in share[:: max(1, stride)])


def _numbers(buffer: NDArray[np.uint8]) -> range:
    return range(-(-buffer.size // BLOCK_NBYTES))


def _block(buffer: NDArray[np.uint8], number: int) -> NDArray[np.uint8]:
    return buffer[number * BLOCK_NBYTES : (number + 1) * BLOCK_NBYTES]


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
