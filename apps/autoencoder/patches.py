"""Patches of pictures, a row each: those of MNIST, or the embedded digits. *Local.*

As in Stanford's CS294A (A. Ng, Sparse autoencoder): each patch without its mean, cut at three standard deviations of
all, from 0.1 to 0.9.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

import malt
from apps.harness import Array, fingerprint
from apps.pictures import idx

SIDE: Final = 8
"""The pixels of a patch's side, where pictures are as large."""
_IMAGES: Final = ("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz")
_DEVIATIONS: Final = 3.0
_COPIES: Final = 4
"""The patches, and what is in memory beside while they are made."""


def paths(data: str | None) -> list[str]:
    """All file names that `pictures` looks for."""
    return [] if data is None else [data, *(os.path.join(data, name) for name in _IMAGES)]


def pictures(data: str | None) -> Array:
    """The pictures of an idx file, of the training file in a folder, or the embedded digits: (pictures, rows, columns).

    ValueError: a file is not valid, or there is none. OSError: a file cannot be read.
    """
    path = os.path.join(idx.DIGITS, "images-idx3-ubyte.gz") if data is None else data
    if data is not None and os.path.isdir(data):
        found = [path for path in paths(data)[1:] if os.path.exists(path)]
        if not found:
            raise ValueError(f"{data}: there is no file {_IMAGES[0]} or {_IMAGES[1]} in it")
        path = found[0]
    images = idx.read(path, 3)
    if not images.size:
        raise ValueError(f"{path}: holds no pictures")
    return images


def cut(images: Array, count: int, seed: int) -> Array:
    """`count` patches of `images`, drawn at random: (count, pixels), float64; it cannot be written to.

    Patches are as large as the pictures where these are smaller than SIDE.
    """
    rng, sides = np.random.default_rng(seed), [min(SIDE, length) for length in images.shape[1:]]
    picture = rng.integers(len(images), size=(count, 1, 1))
    corners = [
        rng.integers(length - side + 1, size=(count, 1, 1))
        for length, side in zip(images.shape[1:], sides, strict=True)
    ]
    rows = corners[0] + np.arange(sides[0])[:, None]
    columns = corners[1] + np.arange(sides[1])
    patches = images[picture, rows, columns].reshape(count, -1).astype(np.float64)
    patches -= patches.mean(1, keepdims=True)
    scale = _DEVIATIONS * patches.std() or 1.0
    scaled = np.clip(patches / scale, -1, 1) * 0.4 + 0.5
    scaled.flags.writeable = False
    return scaled


class Patches:
    """The patches of a run, which a rank makes when it needs them. All methods raise as `pictures`."""

    def __init__(self, data: str | None, count: int, seed: int) -> None:
        self._arguments = data, count, seed
        self._rows: Array | None = None
        self._side = 0

    def rows(self) -> Array:
        """The patches, the same on each rank."""
        if self._rows is None:
            data, count, seed = self._arguments
            images = pictures(data)
            nbytes, free = _COPIES * count * SIDE * SIDE * np.dtype(np.float64).itemsize, malt.free_memory()
            if free is not None and nbytes > free:
                raise ValueError(
                    f"--patches {count:,} take {nbytes / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB of memory are free: "
                    "take fewer"
                )
            self._rows, self._side = cut(images, count, seed), min(SIDE, images.shape[2])
        return self._rows

    def facts(self) -> dict[str, Any]:
        """Return what ranks must agree on about the patches: their pixels, those of a row of a patch, a check."""
        rows = self.rows()
        return {"pixels": rows.shape[1], "side": self._side, "check": fingerprint(rows)}
