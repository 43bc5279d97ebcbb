"""Saves and loads an autoencoder as .npz. Nothing is unpickled. *Local.*"""

from __future__ import annotations

from typing import Final

import numpy as np

from apps.autoencoder.network import Layers, layers, length
from apps.harness import Array
from malt.files import load_npz, save_npz

FORMAT: Final = 1
PROGRAM: Final = "apps.autoencoder"


def save(path: str, model: Layers) -> None:
    """Write the layers as U, b, V, c, complete or not at all. OSError: the file cannot be written."""
    save_npz(path, format=FORMAT, program=PROGRAM, **model._asdict())


def load(path: str, pixels: int, hidden: int) -> Array:
    """The weights of an autoencoder of this size, as one array.

    ValueError: the file is no such model. The message names the file. OSError: it cannot be read.
    """
    found, w = load_npz(path), np.zeros(length(pixels, hidden))
    if str(found.get("program")) != PROGRAM or int(found.get("format", 0)) != FORMAT:
        raise ValueError(f"{path}: not a model of {PROGRAM}, of format {FORMAT}")
    for name, place in layers(w, pixels)._asdict().items():
        array = found.get(name, np.zeros(0))
        if (array.shape, array.dtype) != (place.shape, place.dtype):
            shape = found["U"].shape if "U" in found else None
            raise ValueError(f"{path}: a model of (pixels, hidden units) {shape}, not of {(pixels, hidden)} as here")
        place[...] = array
    if not np.isfinite(w).all():
        raise ValueError(f"{path}: the model holds NaN or infinity")
    return w
