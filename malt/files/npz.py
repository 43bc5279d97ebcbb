"""Arrays in .npz files, without pickles. All calls are local.

The sizes that a file states are checked before memory is allocated.
"""

from __future__ import annotations

import errno
import math
import os
import stat
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray

from malt.files import atomic

DAMAGES: Final = (
    ValueError, KeyError, TypeError, OverflowError, EOFError, SyntaxError, NotImplementedError, RuntimeError,
    tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""The errors that reading a damaged .npz, or another file, may raise."""


def save_npz(path: str | os.PathLike[str], /, **arrays: ArrayLike) -> None:
    """Write `arrays`, by name, to the .npz file `path`, complete or not at all. Local.

    Numbers and strings become zero-dimensional arrays. ValueError: an array holds objects. OSError, with the name
    `path`: the file cannot be written. After an error `path` is unchanged and no other file is left.
    """
    members = {name: np.asarray(array, order="C") for name, array in arrays.items()}

    def fill(file: Any) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            write_arrays(archive, members)

    atomic.write(path, fill)


def load_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Return the arrays of the .npz file `path`, by name. Local. The arrays are copies, and writable.

    ValueError, of one line that names the file: it is damaged, compressed, holds pickles, or is not an .npz. OSError:
    it cannot be read, or is not a regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):  # open() would wait for a pipe
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            check_sizes(archive)
            return read_arrays(archive)
    except DAMAGES as error:
        raise ValueError(f"{os.fspath(path)}: not an .npz as malt.files writes it, or a damaged one: {error}") from None


def write_arrays(archive: zipfile.ZipFile, members: Mapping[str, NDArray[Any]]) -> None:
    """Add the arrays of `members`, C-contiguous, by name. Local. ValueError: an array holds objects."""
    for name, array in members.items():
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            npy.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_arrays(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    """Return all arrays, by name. Local. Call check_sizes first. Raises one of DAMAGES."""
    arrays = {}
    for name in archive.namelist():
        with archive.open(name) as member:
            arrays[name.removesuffix(".npy")] = npy.read_array(member, allow_pickle=False)
    return arrays


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
        if dtype.hasobject or length != member.file_size or member.header_offset + length > nbytes:
            raise ValueError(f"{member.filename} is not as described")


def _head(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Return the shape, the dtype and the length of the header of a member."""
    with archive.open(member) as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError(f"{member.filename} is of another version")
        shape, _, dtype = npy.read_array_header_1_0(file)
        return shape, dtype, file.tell()
