"""Reads idx files, the format of MNIST: a header of big-endian 32-bit numbers, then a tensor of unsigned bytes.

    0x00000800 + number of dimensions, each dimension's length, then the bytes, the last dimension fastest

The source is Y. LeCun's description of the format. All functions are *Local.*
"""

from __future__ import annotations

import gzip
import os
import zlib
from io import BufferedIOBase
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

DIGITS: Final = str(Path(__file__).parent / "data" / "digits")
"""The folder of the embedded pictures: 1,797 handwritten digits of 8 x 8 pixels, from 0 to 16."""
UNSIGNED_BYTES: Final = 0x0800
"""The first number of a file of unsigned bytes, without the number of dimensions."""
MAX_DEFLATION: Final = 1032
"""The most bytes that one byte of a gzip file can expand to, a bound given by zlib."""


def read(path: str, dimensions: int) -> NDArray[np.uint8]:
    """The tensor in a file, plain or .gz: a new uint8 array of `dimensions` dimensions.

    ValueError: the file is not such a tensor, is damaged, or is longer or shorter than its header says. The message
    names the file. A header that promises more than the file can hold is refused before memory is allocated. OSError:
    the file cannot be read.
    """
    most = os.stat(path).st_size * (MAX_DEFLATION if path.endswith(".gz") else 1)
    try:
        with gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb") as file:
            return _read(file, path, dimensions, most)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: a damaged or cut-off gzip file ({error}): fetch it again") from error


def _read(file: BufferedIOBase, path: str, dimensions: int, most: int) -> NDArray[np.uint8]:
    header = np.frombuffer(_exactly(file, 4, path), ">u4")
    if header[0] != UNSIGNED_BYTES + dimensions:
        wanted = f"of {dimensions}-dimensional unsigned bytes, which begins with {UNSIGNED_BYTES + dimensions:08x}"
        raise ValueError(f"{path}: not an idx file {wanted}: it begins with {header[0]:08x}")
    shape = np.frombuffer(_exactly(file, 4 * dimensions, path), ">u4").tolist()
    nbytes = int(np.prod(shape, dtype=object))
    if nbytes > most:
        lengths = " x ".join(map(str, shape))
        raise ValueError(f"{path}: its header declares {lengths} bytes, more than can be in it")
    tensor = np.empty(shape, np.uint8)
    _fill(file, tensor, path)
    if file.read(1):
        raise ValueError(f"{path}: longer than the {nbytes:,} bytes that its header declares")
    return tensor


def _exactly(file: BufferedIOBase, nbytes: int, path: str) -> bytes:
    data = file.read(nbytes)
    if len(data) < nbytes:
        raise ValueError(f"{path}: ends within the header of an idx file")
    return data


def _fill(file: BufferedIOBase, tensor: NDArray[np.uint8], path: str) -> None:
    into, done = tensor.reshape(-1).data, 0
    while done < tensor.size:
        count = file.readinto(into[done:])
        if not count:
            raise ValueError(f"{path}: ends after {done:,} of the {tensor.size:,} bytes that its header declares")
        done += count
