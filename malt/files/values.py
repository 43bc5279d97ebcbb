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
from collections.abc import Callable, Sequence
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
Take = Callable[[str, list[int]], Array]


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

    None, a truth value, a number, a string, an array of numbers, text or dates, a sparse matrix in CSR form, a
    malt.Dataset or malt.Ratings, a slice; a list, a tuple, a Counter, or a dict with strings and integers as keys of
    these.
    TypeError: it is something else.
    """
    arrays: list[Array] = []
    return Packed(json.dumps(_described(value, arrays)), arrays)


def unpack(packed: Packed) -> Any:
    """The value. Its arrays are those of `packed`."""
    arrays = iter(packed.arrays)
    return _made(json.loads(packed.text), lambda dtype, shape: next(arrays))


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
        values.append(_made(json.loads(taken(text_nbytes).tobytes()), view))
    return values


def layout(text: str) -> list[tuple[str, list[int]]]:
    """The dtypes and shapes of the arrays in a text, in their order."""
    found: list[tuple[str, list[int]]] = []

    def note(dtype: str, shape: list[int]) -> Array:
        """Note an array's dtype and shape; return one that stands for it. Local."""
        found.append((dtype, shape))
        return np.zeros(())

    _made(json.loads(text), note)
    return found


def _described(value: Any, arrays: list[Array]) -> Any:
    """What JSON can express of `value`; its arrays are appended to `arrays`."""
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return {"array": _noted(np.asarray(value, order="C"), arrays)}
    if isinstance(value, np.generic) and value.dtype.kind in NUMBERS and value.dtype.itemsize <= 8:
        return {"number": [value.dtype.str, value.item()]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list):
        return [_described(one, arrays) for one in value]
    if isinstance(value, tuple):
        return {"tuple": [_described(one, arrays) for one in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, Counter):
        return {"counter": [_described(one, arrays) for one in value.items()]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _described(one, arrays) for key, one in value.items()}}
    if isinstance(value, dict) and all(isinstance(key, (str, int)) for key in value):
        return {"items": [[key, _described(one, arrays)] for key, one in value.items()]}
    if getattr(value, "format", None) == "csr":
        return {"csr": [value.shape, *(_noted(one, arrays) for one in (value.data, value.indices, value.indptr))]}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop]}
    if kind := kind_of(value):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return {kind: {name: _described(one, arrays) for name, one in fields.items()}}
    raise TypeError(f"a value of type {type(value).__name__} cannot be exchanged")


def kind_of(value: Any) -> str:
    """The name of malt's own kind of data that `value` is: Dataset or Ratings; "": it is neither."""
    for name, module in _KINDS.items():
        if module in sys.modules and isinstance(value, getattr(sys.modules[module], name)):
            return name
    return ""


def _noted(array: Array, arrays: list[Array]) -> list[Any]:
    if array.dtype.kind not in _PLAIN or not array.dtype.itemsize:
        raise TypeError(f"an array of {array.dtype} cannot be exchanged")
    arrays.append(array)
    return [array.dtype.str, array.shape]


def _made(described: Any, take: Take) -> Any:
    """The value of a description. take(dtype, shape) returns its arrays, in their order."""
    if isinstance(described, list):
        return [_made(one, take) for one in described]
    if not isinstance(described, dict):
        return described
    [(kind, inner)] = described.items()
    if kind == "array":
        return take(*inner)
    if kind == "number":
        return np.dtype(inner[0]).type(inner[1])
    if kind == "tuple":
        return tuple(_made(one, take) for one in inner)
    if kind == "items":
        return {key: _made(one, take) for key, one in inner}
    if kind == "complex":
        return complex(*inner)
    if kind == "counter":
        return Counter(dict(_made(one, take) for one in inner))
    if kind == "csr":
        from scipy.sparse import csr_array

        shape, *arrays = inner
        return csr_array(tuple(take(*one) for one in arrays), shape=tuple(shape))
    if kind == "slice":
        return slice(*inner)
    made = {name: _made(one, take) for name, one in inner.items()}
    return getattr(import_module(_KINDS[kind]), kind)(**made) if kind in _KINDS else made


def _padded(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


def _flat(array: Array) -> Bytes:
    return array.reshape(-1).view(np.uint8)
