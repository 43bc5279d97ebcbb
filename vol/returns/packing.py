"""Packs what a rejoining rank receives as bytes: arrays by name. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from vol.update import Array

Values = Mapping[str, Array]
"""What a newcomer gets."""
ARRAY = "array"
"""The name of the array of a vector among its values."""


def packed(values: Values) -> list[Array]:
    """The bytes of `values`, in parts, which `unpack` takes one after the other. Pure."""
    head = json.dumps([[name, array.dtype.str, array.shape] for name, array in values.items()]).encode()
    flat = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in values.values()]
    return [np.array([len(head)], np.int64).view(np.uint8), np.frombuffer(head, np.uint8), *flat]


def unpack(memory: Array) -> dict[str, Array]:
    """The values of which `packed` has made these bytes: copies. Pure."""
    length = int(memory[:8].view(np.int64)[0])
    values, start = {}, 8 + length
    for name, kind, shape in json.loads(memory[8 : 8 + length].tobytes()):
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        values[name] = memory[start : start + size].copy().view(kind).reshape(shape)
        start += size
    return values
