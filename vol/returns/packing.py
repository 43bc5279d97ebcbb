"""Packs what a rejoining rank receives as bytes: arrays by name. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from vol.update import Array

Values = Mapping[str, Array]
"""What a newcomer gets."""


def packed_nbytes(values: Values) -> int:
    """The bytes that `pack` takes. Pure."""
    return 8 + len(_head(values)) + sum(array.nbytes for array in values.values())


def pack(values: Values, memory: Array) -> None:
    """Write `values` into `memory`. Local."""
    head = _head(values)
    memory[:8] = np.array([len(head)], np.int64).view(np.uint8)
    memory[8 : 8 + len(head)] = np.frombuffer(head, np.uint8)
    start = 8 + len(head)
    for array in values.values():
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory[start : start + flat.size] = flat
        start += flat.size


def unpack(memory: Array) -> dict[str, Array]:
    """The values that `pack` has written: copies. Local."""
    length = int(memory[:8].view(np.int64)[0])
    values, start = {}, 8 + length
    for name, kind, shape in json.loads(memory[8 : 8 + length].tobytes()):
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        values[name] = memory[start : start + size].copy().view(kind).reshape(shape)
        start += size
    return values


def _head(values: Values) -> bytes:
    return json.dumps([[name, array.dtype.str, array.shape] for name, array in values.items()]).encode()
