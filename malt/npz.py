"""What an .npz says of its arrays, checked before memory is taken for them. *Local.*"""

from __future__ import annotations

import math
import struct
import tokenize
import zipfile
import zlib
from typing import Any, Final

import numpy as np
from numpy.lib import format as npy

DAMAGES: Final = (
    ValueError, KeyError, TypeError, OverflowError, EOFError, SyntaxError, NotImplementedError, RuntimeError,
    tokenize.TokenError, struct.error, zlib.error, zipfile.BadZipFile,
)  # fmt: skip
"""What the reading of a file that is no .npz, or a damaged one, ends in."""


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
