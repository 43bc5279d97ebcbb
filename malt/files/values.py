"""Values as messages: arrays as arrays, what is around them as JSON. Nothing is pickled.

A message holds, for each value, the length of its text, the text, and the bytes of its arrays. Each of these begins at
a multiple of 64 bytes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from malt.files import heartbeats

Array = NDArray[Any]
Bytes = NDArray[np.uint8]

_PLAIN: Final = "biufcSUmM"
"""Kinds of dtypes that can be sent: truth values, numbers, text, dates and durations."""
NUMBERS: Final = "biuf"
"""Kinds of scalars that JSON can express."""
_ALIGNMENT: Final = 64
_LENGTH_NBYTES: Final = 8
_HASHED_NBYTES: Final = 1 << 24
"""What is hashed at once, from one heartbeat to the next."""
_KINDS: Final = {"Dataset": "malt.data.dataset", "Ratings": "malt.data.ratings"}
"""malt's own kinds of data, and their modules: where one is not imported, there is no such value."""
OF_LIBRARIES: Final = ("frame", "object")
"""Kinds of values that are made by other libraries: they travel within a job, and lie in no file."""
_SPARSE: Final = ("csr_array", "csr_matrix")
"""Their kinds are the names of the classes: products of the two differ."""
_WHOLE: Final = (*_SPARSE, *OF_LIBRARIES, "matrix", "objects", "same", "scalar", "transposed")
Take = Callable[[str, list[int]], Array]
Head = tuple[str, list[tuple[str, list[int]]]]
"""The text of a value, and the dtype and the shape of each of its arrays."""


class Packed(NamedTuple):
    """A value, ready to be sent."""

    text: str
    """What JSON can express of it, with the dtypes and shapes of its arrays in their places."""
    arrays: list[Array]
    """Its arrays, C-contiguous: those of the value themselves where they are."""

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def head(self) -> Head:
        """All that others need to take its arrays."""
        return self.text, [(array.dtype.str, list(array.shape)) for array in self.arrays]

    def digest(self) -> str:
        """The SHA-256 of the value, as a text."""
        found = hashlib.sha256(self.text.encode())
        for array in self.arrays:
            for start in range(0, array.nbytes, _HASHED_NBYTES):
                found.update(_flat(array)[start : start + _HASHED_NBYTES].data)
                heartbeats.give()
        return found.hexdigest()


def pack(value: Any) -> Packed:
    """`value`, ready to be sent.

    None, a truth value, a number, a date, a string, an array of numbers, text or dates, a sparse matrix in CSR form, a
    malt.Dataset or malt.Ratings, a slice; a data frame or series of pandas; an estimator of scikit-learn or
    malt.sklearn; a list, a tuple, a Counter, or a dict with strings and numbers as keys of these.
    TypeError: it is something else.
    """
    arrays = _Arrays()
    return Packed(json.dumps(_described(value, arrays)), arrays)


def unpack(packed: Packed) -> Any:
    """The value. Its arrays are those of `packed`."""
    arrays = iter(packed.arrays)
    return made(packed.text, lambda dtype, shape: next(arrays))


def made(text: str, take: Take, refused: Collection[str] = ()) -> Any:
    """The value of a text. take(dtype, shape) returns its arrays, in their order.

    ValueError: it has values of a `refused` kind.
    """
    return _Maker(take, refused).made(json.loads(text))


def joined(values: Sequence[Packed]) -> Bytes:
    """The message of these values."""
    parts: list[Bytes] = []
    for one in values:
        text = np.frombuffer(one.text.encode(), np.uint8)
        length = np.array([text.nbytes], np.int64).view(np.uint8)
        for part in (length, text, *map(_flat, one.arrays)):
            parts += [part, np.zeros(_padded(part.nbytes) - part.nbytes, np.uint8)]
    return np.concatenate(parts) if parts else np.empty(0, np.uint8)


def parted(message: Bytes, *, writable: bool = False) -> list[Any]:
    """The values of a message. Their arrays are views of it, which can be written to if they are `writable`."""
    values, place = [], 0
    message = message[:]
    message.flags.writeable = writable

    def taken(nbytes: int) -> Bytes:
        """The next bytes of the message, as a view. Local."""
        nonlocal place
        found = message[place : place + nbytes]
        place += _padded(nbytes)
        return found

    def view(dtype: str, shape: Sequence[int]) -> Array:
        """The next array of the message, as a view. Local."""
        kind = np.dtype(dtype)
        return taken(math.prod(shape) * kind.itemsize).view(kind).reshape(shape)

    while place < message.nbytes:
        [text_nbytes] = taken(_LENGTH_NBYTES).view(np.int64).tolist()
        values.append(made(taken(text_nbytes).tobytes().decode(), view))
    return values


class _Arrays(list[Array]):
    """The arrays of a value that is described."""

    places: dict[int, int] | None = None
    """The places of those of an estimator, by id: attributes that share an array do so there, too. None: of no one."""


def _described(value: Any, arrays: _Arrays) -> Any:
    """Return `value` as JSON can express it; its arrays are appended to `arrays`."""
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray) and value.dtype.names is None:
        if isinstance(value, np.matrix):
            return {"matrix": _described_array(np.asarray(value), arrays)}
        return _described_array(value, arrays)
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS and value.dtype.itemsize <= 8:
        return {"number": [value.dtype.str, value.item()]}
    if isinstance(value, np.generic) and value.dtype.kind in "fcmM":
        return {"scalar": _described_array(np.asarray(value), arrays)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_described(one, arrays) for one in value]
    if isinstance(value, tuple) and not (arrays.places is not None and hasattr(value, "_fields")):
        return {"tuple": [_described(one, arrays) for one in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, Counter):
        return {"counter": [_described(one, arrays) for one in value.items()]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _described(one, arrays) for key, one in value.items()}}
    if isinstance(value, dict) and all(isinstance(key, (str, int, float, np.integer)) for key in value):
        return {"items": [[_described(key, arrays), _described(one, arrays)] for key, one in value.items()]}
    if getattr(value, "format", None) == "csr":
        return _described_sparse(value, arrays)
    if isinstance(value, slice):
        return {"slice": [_described(one, arrays) for one in (value.start, value.stop, value.step)]}
    if kind := kind_of(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {kind: {name: _described(one, arrays) for name, one in fields.items()}}
    return _described_whole(value, arrays)


def _described_whole(value: Any, arrays: _Arrays) -> Any:
    """A frame or an estimator. TypeError: it is neither."""
    from malt.files import frames, objects

    if (found := frames.parts(value)) is not None:
        return {"frame": _described(found, arrays)}
    outer = arrays.places
    if (found := objects.parts(value, outer is not None)) is None:
        raise TypeError(f"a value of type {type(value).__name__} cannot be exchanged")
    arrays.places = {} if outer is None else outer
    try:
        return {"object": _described(found, arrays)}
    finally:
        arrays.places = outer


def _described_sparse(matrix: Any, arrays: _Arrays) -> Any:
    from scipy.sparse import spmatrix

    kind = "csr_matrix" if isinstance(matrix, spmatrix) else "csr_array"
    return {kind: [matrix.shape, *(_noted(one, arrays) for one in (matrix.data, matrix.indices, matrix.indptr))]}


def _described_array(array: Array, arrays: _Arrays) -> Any:
    if array.dtype == object:  # of text, say
        return {"objects": [array.shape, [_described(one, arrays) for one in array.reshape(-1)]]}
    if arrays.places is None:
        return {"array": _noted(np.asarray(array, order="C"), arrays)}
    if id(array) in arrays.places:
        return {"same": arrays.places[id(array)]}
    if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous:  # products round by the layout
        return {"transposed": _described_array(array.T, arrays)}
    arrays.places[id(array)] = len(arrays)
    return {"array": _noted(np.asarray(array, order="C"), arrays)}


def kind_of(value: Any) -> str:
    """The name of malt's own kind of data that `value` is: Dataset or Ratings; "": it is neither."""
    for name, module in _KINDS.items():
        if module in sys.modules and isinstance(value, getattr(sys.modules[module], name)):
            return name
    return ""


def _noted(array: Array, arrays: _Arrays) -> list[Any]:
    if array.dtype.kind not in _PLAIN or not array.dtype.itemsize:
        raise TypeError(f"an array of {array.dtype} cannot be exchanged")
    arrays.append(array)
    return [array.dtype.str, array.shape]


class _Maker:
    """Makes a value of its description: as `made`."""

    def __init__(self, take: Take, refused: Collection[str]) -> None:
        self._take, self._refused = take, refused
        self._arrays: list[Array] = []

    def made(self, described: Any) -> Any:
        """The value of a description."""
        if isinstance(described, list):
            return [self.made(one) for one in described]
        if not isinstance(described, dict):
            return described
        [(kind, inner)] = described.items()
        if kind in self._refused:
            raise ValueError(f"a value of kind {kind!r}")
        if kind == "array":
            return self._next(*inner)
        if kind == "number":
            return np.dtype(inner[0]).type(inner[1])
        if kind == "tuple":
            return tuple(self.made(inner))
        if kind == "items":
            return {self.made(key): self.made(one) for key, one in inner}
        if kind == "complex":
            return complex(*inner)
        if kind == "counter":
            return Counter(dict(self.made(inner)))
        if kind == "slice":
            return slice(*self.made(inner))
        if kind in _WHOLE:
            return self._whole(kind, inner)
        made = {name: self.made(one) for name, one in inner.items()}
        return getattr(import_module(_KINDS[kind]), kind)(**made) if kind in _KINDS else made

    def _whole(self, kind: str, inner: Any) -> Any:
        """A value of one of the kinds in _WHOLE."""
        if kind in _SPARSE:
            shape, *arrays = inner
            made = getattr(import_module("scipy.sparse"), kind)
            return made(tuple(self._next(*one) for one in arrays), shape=tuple(shape))
        if kind == "same":
            return self._arrays[inner]
        if kind == "matrix":
            return self.made(inner).view(np.matrix)
        if kind == "scalar":
            return self.made(inner)[()]
        if kind == "transposed":
            return self.made(inner).T
        if kind == "objects":
            array = np.empty(math.prod(inner[0]), object)
            for place, one in enumerate(inner[1]):
                array[place] = self.made(one)
            return array.reshape(inner[0])
        from malt.files import frames, objects

        return (frames if kind == "frame" else objects).made(self.made(inner))

    def _next(self, dtype: str, shape: list[int]) -> Array:
        self._arrays.append(self._take(dtype, shape))
        return self._arrays[-1]


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _flat(array: Array) -> Bytes:
    return array.reshape(-1).view(np.uint8)
