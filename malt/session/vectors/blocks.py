"""`malt.blocks`: all ranks check and compare its arguments, then make the blocks."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dstorm.words import shown
from malt.session.vectors.creation import create
from malt.session.vectors.vector import checked_array
from malt.session.world.world import World
from vol import arguments
from vol.update import Array

if TYPE_CHECKING:
    from vol import Blocks

_Arguments = tuple[Array, list[int], NDArray[np.int32] | None]


def blocks(init: Array, sizes: Sequence[int], owners: Any = None, name: str | None = None) -> Blocks:
    """Return an array in blocks of rows, each held by one rank at a time. Collective.

        b = malt.blocks(rows, sizes)
        for epoch in range(10):
            for visit in b.round():  # each block once, as it arrives
                train(b.array[visit.rows])  # on this rank's data, in place
        rows = b.common()  # the newest rows, the same on all ranks

    `init`: the rows, the same values on all ranks. It becomes this rank's copy itself: C-contiguous and writable, of
    float16, 32, 64 or an integer dtype, with a first axis of rows. `sizes`: the number of rows of each block, from the
    first row on. With more blocks than ranks no rank waits for a block: use two for each rank, say, which take about
    the same work. `owners`: for each row the only rank that uses it, or -1 if several do. A row with an owner is never
    sent as long as no rank fails. In each block the rows without an owner come first. `name`: for error messages, the
    same on all ranks.

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs. MemoryError, on all ranks: the
    host, or its /dev/shm, cannot hold the blocks. RuntimeError: another thread is in a collective call. Nothing is
    made.
    """

    def check(world: World) -> tuple[_Arguments, Mapping[str, Any]]:
        """The arguments, checked, and what all ranks must agree on. Local. ValueError."""
        array = checked_array(_array(init))
        counts = _checked_sizes(sizes, array)
        whose = None if owners is None else _checked_owners(owners, counts, world.size)
        description = {
            "shape": list(array.shape), "dtype": array.dtype.str, "a checksum of init": zlib.crc32(array.data),
            "a checksum of sizes": zlib.crc32(np.array(counts).data),
            "a checksum of owners": None if whose is None else zlib.crc32(whose.data),
        }  # fmt: skip
        return (array, counts, whose), description

    def make(world: World, title: str, checked: _Arguments, ranks: tuple[int, ...]) -> Blocks:
        """The blocks, of what was checked. Collective."""
        from vol import Blocks

        array, counts, whose = checked
        kind = world.kind_of(Blocks)
        return kind(array, counts, world.transport, whose, ranks=ranks, deadline_s=world.deadline_s, name=title)

    return create("malt.blocks", "blocks", name, check, make)


def _array(init: Any) -> Array:
    if not isinstance(init, np.ndarray):
        raise TypeError(f"init must be a NumPy array, got {shown(init)}")
    return init


def _checked_sizes(sizes: Any, array: Array) -> list[int]:
    try:
        counts = [arguments.whole("sizes: a number of rows", one, 0) for one in sizes]
    except TypeError:
        raise TypeError(f"sizes must be a list of numbers of rows, got {shown(sizes)}") from None
    if not array.ndim or not counts or sum(counts) != len(array):
        raise ValueError(f"sizes must add up to the rows of init, of shape {array.shape}; they add up to {sum(counts)}")
    return counts


def _checked_owners(owners: Any, counts: Sequence[int], size: int) -> NDArray[np.int32]:
    found = np.asarray(owners)
    is_whole = found.shape == (sum(counts),) and found.dtype.kind in "iu"
    if not is_whole or ((found < -1) | (found >= size)).any():
        raise ValueError(f"owners must hold for each of the {sum(counts)} rows a rank, from 0 to {size - 1}, or -1")
    for block, rows in enumerate(np.split(found, np.cumsum(counts)[:-1])):
        if (np.diff((rows >= 0).astype(int)) < 0).any():
            raise ValueError(f"owners: in block {block} a row of no owner stands behind one that has an owner")
    return found.astype(np.int32)
