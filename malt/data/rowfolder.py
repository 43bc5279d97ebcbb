"""A folder of rows: four .npy files that are memory-mapped, and a description with checksums.

    labels.npy   float64, rows          as written in the file
    indptr.npy   int64, rows + 1
    indices.npy  int32, non-zeros       columns: from 0, whatever the file counts from
    values.npy   float32, non-zeros
    about.json   format and version, the file they were read from, a summary, CRC-32 of each block of each array; and
                 a SHA-256 of all that

A folder is written in steps by the ranks of one host: one makes it, with the final sizes; each writes its rows; each
takes the checksums of some blocks; one seals it with about.json. A folder without a good about.json is none.

Opening checks the description, all sizes and, by reading them, the checksums of up to VERIFY_NBYTES a rank (the ranks
of a host share the blocks out among them): with CRC-32 at some 4 GB/s that is a quarter of a second at most, and
of a folder below ranks x VERIFY_NBYTES it is everything. Of a larger one it is blocks spread evenly over it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from malt.atomicfile import sync_folder
from malt.data.svmlight import MAX_INDEX, Rows

FORMAT: Final = "malt rows"
VERSION: Final = 2
HEADER_NBYTES: Final = 128
BLOCK_NBYTES: Final = 1 << 22
VERIFY_NBYTES: Final = 1 << 30
MAX_ABOUT_NBYTES: Final = 1 << 26
"""A larger description is not read: this one would be of some 20 TB."""

ABOUT: Final = "about.json"
_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "labels": np.dtype("<f8"),
    "indptr": np.dtype("<i8"),
    "indices": np.dtype("<i4"),
    "values": np.dtype("<f4"),
}

Checksums = dict[str, int]
"""CRC-32 by block: "indices 7" is block 7 of the indices."""


@dataclass(frozen=True)
class Summary:
    """What there is to know of all rows of a file."""

    rows: int
    nonzeros: int
    zero_based: bool
    """Whether index 0 occurs."""
    columns: int
    """The largest column + 1: the fewest features that the rows can have."""
    labels: tuple[float, ...]
    """The three smallest different labels, or fewer if there are fewer."""
    largest_line: int = 0
    """The first line of the file, from 1, that the largest column is in; 0 where there is none."""

    def lengths(self) -> dict[str, int]:
        """How many elements each array has."""
        return {"labels": self.rows, "indptr": self.rows + 1, "indices": self.nonzeros, "values": self.nonzeros}


@dataclass(frozen=True, eq=False)
class StoredRows:
    """All rows of a file: read-only views of a folder's memory maps, or of arrays of this process."""

    rows: Rows
    summary: Summary
    checksums: Checksums
    is_mapped: bool

    def identity(self) -> str:
        """The same where, and only where, the rows are the same."""
        return _digest([dataclasses.asdict(self.summary), sorted(self.checksums.items())])


def make(folder: str, summary: Summary) -> None:
    """Make the folder with empty arrays of their final sizes. Local. Raises OSError."""
    os.mkdir(folder)
    for name, length in summary.lengths().items():
        with open(_file(folder, name), "xb") as file:
            file.write(_header(name, length))
            file.truncate(HEADER_NBYTES + length * _DTYPES[name].itemsize)


def _header(name: str, length: int) -> bytes:
    """The head of an .npy file, version 1.0. Written here for it to be the same whatever NumPy's version: then it can
    be compared, and needs no parsing, which of a damaged header may raise anything."""
    text = f"{{'descr': '{_DTYPES[name].str}', 'fortran_order': False, 'shape': ({length},), }}"
    magic = np.lib.format.magic(1, 0)
    nbytes = HEADER_NBYTES - len(magic) - 2
    return magic + nbytes.to_bytes(2, "little") + text.ljust(nbytes - 1).encode() + b"\n"


def write(folder: str, chunks: Sequence[Rows], first_row: int, first_nonzero: int, base: int) -> None:
    """Write rows, from row `first_row` on, index `base` being column 0, through to the disk. Local. Raises OSError.

    With write() and not through a map: on a full disk a map ends the process with SIGBUS.
    """
    _write_array(folder, "labels", first_row, (chunk.labels for chunk in chunks))
    _write_array(folder, "indptr", first_row, _indptr(chunks, first_nonzero))
    _write_array(folder, "indices", first_nonzero, (chunk.indices - np.int32(base) for chunk in chunks))
    _write_array(folder, "values", first_nonzero, (chunk.values for chunk in chunks))


def _indptr(chunks: Sequence[Rows], first_nonzero: int) -> Iterator[NDArray[np.int64]]:
    """indptr of the chunks' rows in pieces: the first is where the first row begins."""
    yield np.array([first_nonzero])
    for chunk in chunks:
        yield chunk.indptr[1:] + first_nonzero
        first_nonzero += chunk.indices.size


def in_memory(chunks: Sequence[Rows], summary: Summary, base: int) -> StoredRows:
    """All rows of a file without a folder: read-only arrays. Local."""
    rows = Rows(
        labels=np.concatenate([chunk.labels for chunk in chunks]),
        indptr=np.concatenate(list(_indptr(chunks, 0))),
        indices=np.concatenate([chunk.indices for chunk in chunks]) - np.int32(base),
        values=np.concatenate([chunk.values for chunk in chunks]),
    )
    for array in vars(rows).values():
        array.flags.writeable = False
    return StoredRows(rows, summary, take_checksums(rows), is_mapped=False)


def _write_array(folder: str, name: str, first: int, pieces: Iterable[NDArray[Any]]) -> None:
    with open(_file(folder, name), "r+b") as file:
        file.seek(HEADER_NBYTES + first * _DTYPES[name].itemsize)
        for piece in pieces:
            file.write(np.ascontiguousarray(piece, dtype=_DTYPES[name]).data)
        file.flush()
        os.fsync(file.fileno())


def seal(folder: str, source: Any, summary: Summary, checksums: Checksums) -> None:
    """Describe the folder, which makes it good. Local. Raises OSError."""
    body = {
        "format": FORMAT,
        "version": VERSION,
        "source": source,
        "summary": dataclasses.asdict(summary),
        "checksums": checksums,
    }
    with open(os.path.join(folder, ABOUT), "x", encoding="ascii") as file:
        json.dump({"body": body, "sha256": _digest(body)}, file)
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def open_folder(folder: str, source: Any, part: int = 0, parts: int = 1) -> StoredRows | None:
    """The rows in a folder if it is whole and was read from `source`, else None. Local.

    Of the checksums, this checks those of share `part` of `parts`.
    """
    try:
        summary, checksums = _read_about(folder, source)
        rows = map_rows(folder, summary)
        if _damaged(rows, checksums, part, parts):
            return None
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, EOFError):
        return None
    return StoredRows(rows, summary, checksums, is_mapped=True)


def _read_about(folder: str, source: Any) -> tuple[Summary, Checksums]:
    with open(os.path.join(folder, ABOUT), "rb") as file:
        about = json.loads(file.read(MAX_ABOUT_NBYTES))
    body = about["body"]
    told = (body["format"], body["version"], body["source"])
    if about["sha256"] != _digest(body) or told != (FORMAT, VERSION, source):
        raise ValueError("another file's, another version's, or damaged")
    summary = Summary(**{**body["summary"], "labels": tuple(body["summary"]["labels"])})
    if not 0 <= summary.columns <= MAX_INDEX + 1:
        raise ValueError("a column is out of range")
    return summary, body["checksums"]


def map_rows(folder: str, summary: Summary) -> Rows:
    """Read-only maps of the arrays of a folder. Local. Raises OSError; ValueError where they are not as described."""
    arrays = {name: _map_array(folder, name, length) for name, length in summary.lengths().items()}
    if arrays["indptr"][0] != 0 or arrays["indptr"][-1] != summary.nonzeros:
        raise ValueError("indptr does not span the non-zeros")
    return Rows(**arrays)


def _map_array(folder: str, name: str, length: int) -> NDArray[Any]:
    header, dtype = _header(name, length), _DTYPES[name]
    with open(_file(folder, name), "rb") as file:
        is_described = file.read(HEADER_NBYTES) == header
        if not is_described or os.fstat(file.fileno()).st_size != HEADER_NBYTES + length * dtype.itemsize:
            raise ValueError(f"{name} is not as described")
        return np.asarray(np.memmap(file, dtype, "r", offset=HEADER_NBYTES, shape=(length,)))


def take_checksums(rows: Rows, part: int = 0, parts: int = 1) -> Checksums:
    """The checksums of every `parts`-th block from block `part` on. Local."""
    return {name: zlib.crc32(block.data) for name, block in list(_blocks(rows))[part::parts]}


def _damaged(rows: Rows, checksums: Checksums, part: int, parts: int) -> bool:
    """Whether a block of share `part` of `parts`, as far as VERIFY_NBYTES go, is not what it was."""
    blocks = list(_blocks(rows))
    if {name for name, _ in blocks} != set(checksums):
        return True
    mine = blocks[part::parts]
    affordable = max(1, VERIFY_NBYTES // BLOCK_NBYTES)
    stride = -(-len(mine) // affordable)
    return any(zlib.crc32(block.data) != checksums[name] for name, block in mine[:: max(1, stride)])


def _blocks(rows: Rows) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    for name in _DTYPES:
        data = getattr(rows, name).view(np.uint8)
        for number, start in enumerate(range(0, data.size, BLOCK_NBYTES)):
            yield f"{name} {number}", data[start : start + BLOCK_NBYTES]


def _file(folder: str, name: str) -> str:
    return os.path.join(folder, f"{name}.npy")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
