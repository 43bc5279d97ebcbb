"""Reads pictures with labels: from a folder of idx files, or the embedded digits. *Local.*"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from apps.pictures import idx
from malt.models.networks import Network

NAMES: Final = ("train", "t10k")
_IMAGES, _LABELS, _ENDINGS = "images-idx3-ubyte", "labels-idx1-ubyte", ("", ".gz")
TEST_SHARE: Final = 0.2
"""The share of test pictures in the embedded digits, which come in one set."""


MOSTLY_ZEROS: Final = 0.7
"""The share of pixels that are 0 from which on it takes less time to skip them."""


@dataclass(frozen=True)
class Pictures:
    """Pictures, a row each, and their labels."""

    pixels: NDArray[np.uint8]
    """(pictures, pixels), C-contiguous."""
    labels: NDArray[np.intp]
    """(pictures,), at least 0."""
    white: int
    """The largest possible value of a pixel."""

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def share_of_zeros(self) -> float:
        """The share of pixels that are 0."""
        return 1 - np.count_nonzero(self.pixels) / self.pixels.size

    def chosen(self, rows: NDArray[np.int64]) -> Pictures:
        """The pictures in `rows`, in that order: a copy."""
        return Pictures(self.pixels[rows], self.labels[rows], self.white)

    def show(self, network: Network, order: NDArray[np.integer[Any]]) -> None:
        """Copy the pictures in `order` into the network, with pixels scaled to 0..1."""
        chosen = np.take(self.pixels, order, axis=0, mode="clip")
        np.multiply(chosen, np.float32(1 / self.white), out=network.inputs(len(order)), dtype=np.float32)


def load(folder: str | None, seed: int) -> tuple[Pictures, Pictures]:
    """The training pictures and the test pictures: those of the folder, or the digits, divided at random by the seed.

    ValueError: a file is not valid, or files do not fit together. OSError: a file cannot be read. The messages name the
    file.
    """
    if folder is None:
        return _digits(seed)
    train, test = (_of_folder(folder, name) for name in NAMES)
    if train.pixels.shape[1] != test.pixels.shape[1]:
        sizes = [some.pixels.shape[1] for some in (train, test)]
        raise ValueError(f"{folder}: pictures of {sizes[0]:,} pixels to train on, of {sizes[1]:,} to test on")
    return train, test


def paths(folder: str | None) -> list[str]:
    """All file names that `load` looks for in the folder; empty if that is None."""
    names = [f"{name}-{rest}{ending}" for name in NAMES for rest in (_IMAGES, _LABELS) for ending in _ENDINGS]
    return [] if folder is None else [os.path.join(folder, name) for name in names]


def _of_folder(folder: str, name: str) -> Pictures:
    images = _file(folder, f"{name}-{_IMAGES}")
    tensor = idx.read(images, 3)
    if not tensor.size:
        raise ValueError(f"{images}: holds no pictures")
    path = _file(folder, f"{name}-{_LABELS}")
    labels = idx.read(path, 1)
    if len(labels) != len(tensor):
        raise ValueError(f"{path}: {len(labels):,} labels, but {images} holds {len(tensor):,} pictures")
    return Pictures(tensor.reshape(len(tensor), -1), labels.astype(np.intp), 255)


def _file(folder: str, name: str) -> str:
    os.listdir(folder)  # an OSError that names the folder, if that cannot be read
    found = [path for path in (os.path.join(folder, name + end) for end in _ENDINGS) if os.path.exists(path)]
    if not found:
        raise ValueError(f"{folder}: there is no file {name} or {name}.gz in it")
    return found[0]


def _digits(seed: int) -> tuple[Pictures, Pictures]:
    pixels, labels = idx.read(_file(idx.DIGITS, _IMAGES), 3), idx.read(_file(idx.DIGITS, _LABELS), 1)
    everything = Pictures(pixels.reshape(len(pixels), -1), labels.astype(np.intp), 16)
    order = np.random.default_rng(seed).permutation(len(everything))
    n_test = round(TEST_SHARE * len(everything))
    return everything.chosen(order[n_test:]), everything.chosen(order[:n_test])
