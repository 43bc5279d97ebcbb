"""Saves and loads the layers of a network as .npz. Nothing is unpickled. *Local.*"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

import numpy as np
from numpy.lib import format as npy

from malt.files import save_npz
from malt.models.networks import Weights

FORMAT: Final = 1
PROGRAM: Final = "apps.mlp"
_DAMAGES: Final = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, NotImplementedError, RuntimeError, SyntaxError)
"""The exceptions that NumPy raises for a file that is not .npz, or is damaged."""

_Header = tuple[tuple[int, ...], np.dtype[Any]]
Content = TypeVar("Content")


def save(path: str, layers: Sequence[Weights], **data: Any) -> None:
    """Write the layers as layer_1, layer_2..., complete or not at all. The last row of each holds the biases.

    `data`: what `described` returns of the data, for a network of svmlight rows.
    """
    named: dict[str, Any] = {_name(place): layer for place, layer in enumerate(layers, 1)}
    save_npz(path, format=FORMAT, program=PROGRAM, **data, **named)


def load(path: str, sizes: Sequence[int]) -> list[Weights]:
    """The layers of a network of `sizes` neurons. Shapes and dtypes in the file are checked before arrays are read.

    ValueError: the file is not a model, or a model of another program or other sizes. The message names the file.
    OSError: it cannot be read.
    """
    return _read(path, lambda archive: _layers(archive, sizes))


def described(path: str) -> tuple[int, dict[str, Any]]:
    """The number of features of a network of svmlight rows, and the arguments by which malt.open_svmlight reads such.

    ValueError, OSError: as `load`; the network is one of pictures.
    """
    return _read(path, _described)


def _read(path: str, content: Callable[[zipfile.ZipFile], Content]) -> Content:
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return content(archive)
    except _DAMAGES as error:
        raise ValueError(f"{path}: not a model of {PROGRAM}, or a damaged one: {error}") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _described(archive: zipfile.ZipFile) -> tuple[int, dict[str, Any]]:
    headers = _headers(archive)
    (shape, _), labels, zero_based = (headers.get(name, ((), None)) for name in (_name(1), "labels", "zero_based"))
    if len(shape) != 2 or labels != ((2,), np.dtype(np.float64)) or zero_based != ((), np.dtype(np.bool_)):
        raise ValueError("a network of pictures, not of svmlight rows")
    labels = _array(archive, "labels").tolist()
    return shape[0] - 1, {"labels": labels, "zero_based": bool(_array(archive, "zero_based"))}


def _headers(archive: zipfile.ZipFile) -> dict[str, _Header]:
    """Return the headers of the arrays of a model, by name."""
    headers = {name.removesuffix(".npy"): _header(archive, name) for name in archive.namelist()}
    if headers.get("program") != ((), np.dtype(f"<U{len(PROGRAM)}")) or str(_array(archive, "program")) != PROGRAM:
        raise ValueError(f"not a model of {PROGRAM}")
    if headers.get("format") != ((), np.dtype(np.int64)) or _array(archive, "format") != FORMAT:
        raise ValueError(f"a model of {PROGRAM}, but not of format {FORMAT}, which this version reads")
    return headers


def _layers(archive: zipfile.ZipFile, sizes: Sequence[int]) -> list[Weights]:
    headers = _headers(archive)
    layers = [headers[name] for name in map(_name, range(1, len(headers))) if name in headers]
    if layers != [((n_inputs + 1, n_outputs), np.dtype(np.float32)) for n_inputs, n_outputs in pairwise(sizes)]:
        raise ValueError(f"a network of {_sizes_of(layers)} neurons, not of {'-'.join(map(str, sizes))} as here")
    arrays = [np.ascontiguousarray(_array(archive, _name(place))) for place in range(1, len(layers) + 1)]
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("the model holds NaN or infinity")
    return arrays


def _name(place: int) -> str:
    return f"layer_{place}"


def _header(archive: zipfile.ZipFile, name: str) -> _Header:
    with archive.open(name) as member:
        if npy.read_magic(member) != (1, 0):
            raise ValueError(f"not a model of {PROGRAM}")
        shape, _, dtype = npy.read_array_header_1_0(member)
        return shape, dtype


def _array(archive: zipfile.ZipFile, name: str) -> Any:
    with archive.open(f"{name}.npy") as member:
        return npy.read_array(member, allow_pickle=False)


def _sizes_of(layers: Sequence[_Header]) -> str:
    """The sizes in the file, as far as the layers fit together."""
    shapes = [shape for shape, _ in layers if len(shape) == 2]
    return "-".join([*(str(shape[0] - 1) for shape in shapes), *(str(shape[1]) for shape in shapes[-1:])])
