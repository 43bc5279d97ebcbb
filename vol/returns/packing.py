"""What a rank that comes back is given, as bytes. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vol.update import Array

_BESIDE = "beside"
Values = tuple[Sequence[Array], Mapping[str, Any]]
"""What a newcomer gets: arrays, and a dict that JSON can express."""


def packed_nbytes(values: Values) -> int:
    """The bytes that `pack` takes. Pure."""
    return 8 + len(_head(values)) + sum(array.nbytes for array in values[0])


def pack(values: Values, memory: Array) -> None:
    """Write `values` into `memory`. Local."""
    head = _head(values)
    memory[:8] = np.array([len(head)], np.int64).view(np.uint8)
    memory[8 : 8 + len(head)] = np.frombuffer(head, np.uint8)
    start = 8 + len(head)
    for array in values[0]:
        flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory[start : start + flat.size] = flat
        start += flat.size


def unpack(memory: Array) -> Values:
    """The values that `pack` has written. Local."""
    length = int(memory[:8].view(np.int64)[0])
    kinds, facts = json.loads(memory[8 : 8 + length].tobytes())
    arrays, start = [], 8 + length
    for kind, shape in kinds:
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(kind).itemsize
        arrays.append(memory[start : start + size].copy().view(kind).reshape(shape))
        start += size
    return arrays, facts


def _head(values: Values) -> bytes:
    return json.dumps([[[array.dtype.str, array.shape] for array in values[0]], values[1]]).encode()


def joined(values: Values, beside: Mapping[str, Any]) -> Values:
    """`values` with those of `beside`, the last arrays. Pure."""
    arrays, facts = values
    return [*arrays, *map(np.asarray, beside.values())], {**facts, _BESIDE: list(beside)}


def parted(values: Values) -> tuple[Values, dict[str, Array]]:
    """What `joined` was given. Pure."""
    arrays, facts = values
    names = facts[_BESIDE]
    count = len(arrays) - len(names)
    rest = {name: fact for name, fact in facts.items() if name != _BESIDE}
    return (arrays[:count], rest), dict(zip(names, arrays[count:], strict=True))
