"""Saves and loads an autoencoder as .npz. Nothing is unpickled. *Local.*"""

from __future__ import annotations

import numpy as np

from apps.autoencoder.network import Layers, layers, length
from apps.harness import Array, load_model, save_model


def save(path: str, model: Layers) -> None:
    """Write the layers as U, b, V, c, complete or not at all. OSError: the file cannot be written."""
    save_model(path, "apps.autoencoder", **model._asdict())


def load(path: str, pixels: int, hidden: int) -> Array:
    """The weights of an autoencoder of this size, as one array.

    ValueError: the file is no such model. The message names the file. OSError: it cannot be read.
    """
    found, w = load_model(path, "apps.autoencoder"), np.zeros(length(pixels, hidden))
    for name, place in layers(w, pixels)._asdict().items():
        array = found.get(name, np.zeros(0))
        if (array.shape, array.dtype) != (place.shape, place.dtype):
            shape = found["U"].shape if "U" in found else None
            raise ValueError(f"{path}: a model of (pixels, hidden units) {shape}, not of {(pixels, hidden)} as here")
        place[...] = array
    if not np.isfinite(w).all():
        raise ValueError(f"{path}: the model holds NaN or infinity")
    return w
