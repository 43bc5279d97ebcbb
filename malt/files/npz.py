"""Arrays in an .npz: nothing is pickled, and what a file says of them is checked before memory is taken. *Local.*"""

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
"""What the reading of a file that is no .npz, or a damaged one, ends in."""


def save_npz(path: str | os.PathLike[str], /, **arrays: ArrayLike) -> None:
    """Make `path` an .npz of `arrays`, by name, complete or not at all. Local.

    Numbers and strings become arrays of no dimensions. ValueError: one is an array of objects. OSError, of `path`. In
    either case nothing is left, and `path` is as before.
    """
    members = {name: np.asarray(array, order="C") for name, array in arrays.items()}

    def fill(file: Any) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            write_arrays(archive, members)

    atomic.write(path, fill)


def load_npz(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays in the .npz `path`, by name: copies, writable. Local.

    It is not compressed, and holds as many bytes as it says. ValueError, in one line that names the file: it is no such
    .npz, or a damaged one. OSError: it cannot be read, or is no regular file.
    """
    if not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path):  # a pipe would be waited for
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            check_sizes(archive)
            return read_arrays(archive)
    except DAMAGES as error:
        raise ValueError(f"{os.fspath(path)}: not an .npz as malt.files writes it, or a damaged one: {error}") from None


def write_arrays(archive: zipfile.ZipFile, members: Mapping[str, NDArray[Any]]) -> None:
    """Add `members`, by name, C-contiguous. ValueError: an array of objects."""
    for name, array in members.items():
        with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
            npy.write_array(member, array, version=(1, 0), allow_pickle=False)


def read_arrays(archive: zipfile.ZipFile) -> dict[str, NDArray[Any]]:
    """All arrays, by name, once check_sizes has passed. Raises one of DAMAGES."""
    arrays = {}
    for name in archive.namelist():
        with archive.open(name) as member:
            arrays[name.removesuffix(".npy")] = npy.read_array(member, allow_pickle=False)
    return arrays


def check_sizes(archive: zipfile.ZipFile) -> None:
    """Raise one of DAMAGES unless every member is in the file, as long as its head says, not compressed, no pickle."""
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
    """The shape, the dtype and the length of its description."""
    with archive.open(member) as file:
        if npy.read_magic(file) != (1, 0):
            raise ValueError(f"{member.filename} is of another version")
        shape, _, dtype = npy.read_array_header_1_0(file)
        return shape, dtype, file.tell()
