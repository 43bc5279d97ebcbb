"""Loads the layers of a network that apps.mlp has saved. Nothing is unpickled. *Local.*"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from apps.harness import load_model
from malt.models.networks import Weights

PROGRAM: Final = "apps.mlp"


def load(path: str, sizes: Sequence[int]) -> list[Weights]:
    """The layers of a network of `sizes` neurons.

    ValueError: the file is not a model, or a model of another program or other sizes. The message names the file.
    OSError: it cannot be read.
    """
    found = load_model(path, PROGRAM)
    layers = [found[name] for name in (f"layer_{place}" for place in range(1, len(found) + 1)) if name in found]
    kinds = [(layer.shape, layer.dtype) for layer in layers]
    if kinds != [((n_inputs + 1, n_outputs), np.dtype(np.float32)) for n_inputs, n_outputs in pairwise(sizes)]:
        there, here = _sizes_of(layers), "-".join(map(str, sizes))
        raise ValueError(f"{path}: a network of {there} neurons, not of {here} as here")
    if not all(np.isfinite(layer).all() for layer in layers):
        raise ValueError(f"{path}: the model holds NaN or infinity")
    return [np.ascontiguousarray(layer) for layer in layers]


def described(path: str) -> tuple[int, dict[str, Any]]:
    """The number of features of a network of svmlight rows, and the arguments by which malt.open_svmlight reads such.

    ValueError, OSError: as `load`; the network is one of pictures.
    """
    found = load_model(path, PROGRAM)
    layer, labels, zero_based = (found.get(name, np.empty(0)) for name in ("layer_1", "labels", "zero_based"))
    kinds = [(array.shape, array.dtype) for array in (labels, zero_based)]
    if layer.ndim != 2 or kinds != [((2,), np.dtype(np.float64)), ((), np.dtype(np.bool_))]:
        raise ValueError(f"{path}: a network of pictures, not of svmlight rows")
    return len(layer) - 1, {"labels": labels.tolist(), "zero_based": bool(zero_based)}


def _sizes_of(layers: Sequence[Weights]) -> str:
    """The sizes in the file, as far as the layers fit together."""
    shapes = [layer.shape for layer in layers if layer.ndim == 2]
    return "-".join([*(str(shape[0] - 1) for shape in shapes), *(str(shape[1]) for shape in shapes[-1:])])
