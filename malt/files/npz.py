"""Arrays in .npz files, without pickles. All calls are local.

The sizes that a file states are checked before memory is allocated.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any, Final, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from malt.files import atomic, heartbeats
from malt.files.arrays import array_of
from malt.files.paths import check_readable


class Streamed(NamedTuple):
    """An array in a file that is never whole in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    pieces: Callable[[], Iterable[NDArray[Any]]]
    """Returns its rows, in order: some in each array, C-contiguous."""
    length: int | None = None
    """The length of the sparse vector whose keys and values the rows are; None: they are no such rows."""


Member = NDArray[Any] | Streamed
"""An array of a file."""
DAMAGES: Final = (
    ValueError, AttributeError, KeyError, TypeError, OverflowError, EOFError, SyntaxError, NotImplementedError,
    RuntimeError, tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""The errors that reading a damaged .npz, or another file, may raise."""


def save_npz(path: str | os.PathLike[str], /, **arrays: ArrayLike) -> None:
    """Write `arrays`, by name, to the .npz file `path`, complete or not at all. Local.

    Numbers and strings become zero-dimensional arrays. Tensors of torch are arrays, too; those of bfloat16 become
    float32. ValueError: an array holds objects, has a mask, or is none. OSError, with the name `path`: the file cannot
    be written. After an error `path` is unchanged and no other file is left.
    """
    members = {name: _checked(name, array) for name, array in arrays.items()}

    def fill(file: Any) -> None:
        """Write the archive to an open file. Local. OSError."""
        with zipfile.ZipFile(file, "w") as archive:
            write_arrays(archive, members)

    atomic.write(path, fill)


def _checked(name: str, value: ArrayLike) -> NDArray[Any]:
    try:
        array = array_of(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{name} is no array: {error}") from error
    if isinstance(value, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array: a file would lose its mask")
    if array.dtype.hasobject:
        raise ValueError(f"{name} holds objects, such as {type(value).__name__}: a file holds only numbers and text")
    return np.asarray(array, order="C")


def load_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the .npz file `path`, by name. Local. The arrays are copies, and writable.

    ValueError, of one line that names the file: it is damaged, compressed, holds pickles, or is not an .npz. OSError:
    it cannot be read, or is not a regular file.
    """
    check_readable(path)
    try:
        with heartbeats.opened(path, "rb") as file, zipfile.ZipFile(file) as archive:
            check_sizes(archive)
            return read_arrays(archive)
    except (*DAMAGES, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.EINVAL:  # a place before the file, as its end has it
            raise
        raise ValueError(f"{os.fspath(path)}: not an .npz as malt.files writes it, or a damaged one: {error}") from None


def write_arrays(archive: zipfile.ZipFile, members: Mapping[str, Member]) -> None:
    """Add the arrays of `members`, C-contiguous, by name. Local. ValueError: an array holds objects."""
    for name, array in members.items():
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            if not isinstance(array, Streamed):
                npy.write_array(member, array, version=(1, 0), allow_pickle=False)
                continue
            head = {"descr": npy.dtype_to_descr(array.dtype), "fortran_order": False, "shape": array.shape}
            npy.write_array_header_1_0(member, head)
            for piece in array.pieces():
                member.write(piece.reshape(-1).view(np.uint8).data)


def read_array(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    """Return the array `name`. Local. Call check_sizes first. Raises one of DAMAGES."""
    with archive.open(f"{name}.npy") as member:
        return npy.read_array(member, allow_pickle=False)


def read_arrays(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    """Return all arrays, by name. Local. Call check_sizes first. Raises one of DAMAGES."""
    names = [name.removesuffix(".npy") for name in archive.namelist()]
    return {name: read_array(archive, name) for name in names}


def streamed(archive: zipfile.ZipFile, name: str, path: str, nbytes: int) -> Streamed:
    """Return the array `name`, to be read from the file `path` piece by piece. Local. Call check_sizes first.

    A piece has at most `nbytes`, or one row. `path` is opened anew for them. They raise one of DAMAGES, also where
    another file has taken its place.
    """
    assert archive.fp is not None
    identity = _identity(archive.fp)
    shape, dtype, head = _head(archive, archive.getinfo(f"{name}.npy"))
    row_nbytes = max(math.prod(shape[1:]) * dtype.itemsize, 1)

    def pieces() -> Iterator[NDArray[Any]]:
        """The rows, some at a time, as views that cannot be written to. Local. ValueError: the file was replaced."""
        with heartbeats.opened(path, "rb") as again:
            if _identity(again) != identity:
                raise ValueError(f"{path}: it was replaced while it was read")
            with zipfile.ZipFile(again) as archive, archive.open(f"{name}.npy") as member:
                member.read(head)
                while block := member.read(max(nbytes // row_nbytes, 1) * row_nbytes):
                    yield np.frombuffer(block, dtype).reshape(-1, *shape[1:])

    return Streamed(shape, dtype, pieces)


def _identity(file: IO[bytes]) -> tuple[int, ...]:
    """Return numbers that distinguish an open file from one that has replaced it."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Check that every member is uncompressed, no pickle, and as long as its header says. Raises one of DAMAGES."""
    members = archive.infolist()
    assert archive.fp is not None
    nbytes = archive.fp.seek(0, 2)
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise ValueError(f"{member.filename} is compressed")
        shape, dtype, head = _head(archive, member)
        length = head + math.prod(shape) * dtype.itemsize
        is_cut = length != member.file_size or member.header_offset + length > nbytes
        if dtype.hasobject or is_cut or member.comment:  # a comment may hide the entry of the next member
            raise ValueError(f"{member.filename} is not as described")


def _head(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return the shape, the dtype and the length of the header of a member."""
    with archive.open(member) as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError(f"{member.filename} is of another version")
        shape, _, dtype = npy.read_array_header_1_0(file)
        return shape, dtype, file.tell()
