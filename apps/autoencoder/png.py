"""Pictures as PNG files. *Local.* The source is the PNG specification, W3C, third edition."""

from __future__ import annotations

import math
import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from apps.harness import Array
from malt import files

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_GRAYSCALE: Final = 0
_SCALE: Final = 6
"""The pixels of a feature's pixel, along each side."""
_GAP: Final = 1
"""The pixels between two features, before they are scaled."""


def save_features(path: str, features: Array, side: int) -> None:
    """Write a row of `features` as a picture each, in a grid: white what is largest in it, black what is smallest.

    `side`: the pixels of a row of a picture. OSError: the file cannot be written.
    """
    image = np.kron(grid(features, side), np.ones((_SCALE, _SCALE), np.uint8))
    files.write(path, lambda file: file.write(png(image)))


def grid(features: Array, side: int) -> NDArray[np.uint8]:
    """The features as gray pictures, side by side in about a square."""
    height, columns = features.shape[1] // side, math.isqrt(len(features) - 1) + 1
    rows = -(-len(features) // columns)
    image = np.zeros((rows * (height + _GAP) + _GAP, columns * (side + _GAP) + _GAP), np.uint8)
    for place, feature in enumerate(features):
        y, x = (place // columns) * (height + _GAP) + _GAP, (place % columns) * (side + _GAP) + _GAP
        low, high = feature.min(), feature.max()
        gray = (feature - low) / ((high - low) or 1) * 255
        image[y : y + height, x : x + side] = np.rint(gray).reshape(height, side)
    return image


def png(image: NDArray[np.uint8]) -> bytes:
    """A gray picture of 8 bits a pixel, as the bytes of a PNG file."""
    height, width = image.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), image], axis=1)  # each begins with its filter: none
    head = struct.pack(">2I5B", width, height, 8, _GRAYSCALE, 0, 0, 0)
    parts = [(b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b"")]
    return _SIGNATURE + b"".join(_part(name, data) for name, data in parts)


def _part(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
