"""Shards: the rows of each rank."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.session import session
from vol import arguments


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first of the rows of `rank`, of `count` rows, and the one after the last. Local.

    The numbers of rows of two ranks differ by at most one.
    """
    return count * rank // size, count * (rank + 1) // size


def living_rows(count: int, rank: int, size: int, failed_ranks: Collection[int]) -> NDArray[np.intp]:
    """Return the rows of `rank`, ascending, once the ranks of `failed_ranks` have failed. Local.

    These are its own rows, and an equal part of the rows of each failed rank. The order of failures does not matter.
    """
    return _joined([bounds(count, rank, size), *_inherited(count, rank, size, failed_ranks)])


def _inherited(count: int, rank: int, size: int, failed_ranks: Collection[int]) -> list[tuple[int, int]]:
    """Return, for each of `failed_ranks`, the first of its rows that `rank` has, and the one after the last."""
    living = sorted(set(range(size)) - set(failed_ranks))
    place = living.index(rank)
    parts = []
    for failed in sorted(failed_ranks):
        first, last = bounds(count, failed, size)
        start, stop = bounds(last - first, place, len(living))
        parts.append((first + start, first + stop))
    return parts


def _joined(parts: Collection[tuple[int, int]]) -> NDArray[np.intp]:
    """Return the rows of all parts, ascending."""
    return np.sort(np.concatenate([np.arange(*part) for part in parts]))


def rows_of(count: int, rank: int, failed: Collection[int] = ()) -> NDArray[np.intp]:
    """Return the row numbers that malt.shard gives to `rank`, once the ranks of `failed` have failed. Local.

    They are ascending: not shuffled. The session is initialized. ValueError: `rank` is in `failed`.
    """
    return living_rows(count, rank, session.size(), failed)


def shard(rows: Any, *, shuffle: bool = False, seed: int = 0) -> Any:
    """Return this rank's part of `rows`. Local. The session is initialized.

    `rows`: a number of rows, an array, a data frame, or any sequence that can be sliced. For a number the part is a
    slice of row numbers. For the others it is the rows of that slice, a view if slicing gives one. With `shuffle`, and
    once a rank has failed, the part of a number or a range is an array of row numbers, that of an array a copy, and
    that of another sequence a list. With more ranks than rows some parts are empty.

    The parts of all live ranks cover each row once. Call it again every epoch, as ranks may fail.

    `shuffle`: deal the rows in a random order, for rows that are sorted, by label for example. The order depends on
    the number of rows and `seed` alone. So X and y still match if each is sharded by a call of its own.

    All ranks must pass the same array. The collective calls that follow compare the length, the dtype and a checksum of
    some elements, for the first 16 arrays. If they differ, all ranks raise a ValueError there.

    TypeError: `rows` is neither a number nor can be sliced by rows, or `shuffle` or `seed` has a wrong type.
    ValueError: `rows` or `seed` is negative.
    """
    world = session.world()
    world.transport.poll_failures()
    what = f"malt.shard takes a number of rows, or an array or list of rows, got a {type(rows).__name__}"
    count, is_count = _count(rows, what)
    seed = _checked_seed(shuffle, seed)
    own = bounds(count, world.rank, world.size)
    inherited = _inherited(count, world.rank, world.size, world.transport.view.failed)
    part: Any = _joined([own, *inherited]) if inherited else slice(*own)
    if shuffle:
        part = np.random.default_rng(seed).permutation(count)[part]
    if is_count:
        return part
    mine = _picked(rows, part, what)
    if hasattr(rows, "shape") and hasattr(rows, "dtype"):
        world.notes.note(rows, seed if shuffle else None)
    return mine


def _count(rows: Any, what: str) -> tuple[int, bool]:
    """Return the number of rows, and whether `rows` is only that number."""
    if isinstance(rows, (str, bytes, Mapping, Set)):
        raise TypeError(what)
    is_count = hasattr(rows, "__index__") and not getattr(rows, "shape", ())
    try:
        count = index(rows) if is_count else rows.shape[0] if hasattr(rows, "shape") else len(rows)
    except (TypeError, IndexError):
        raise TypeError(what) from None
    if isinstance(rows, bool) or count < 0:
        raise ValueError(f"malt.shard takes a number of rows from 0 up, got {rows!r}")
    return count, is_count


def _checked_seed(shuffle: Any, seed: Any) -> int:
    if not isinstance(shuffle, (bool, np.bool_)):
        raise TypeError(f"malt.shard: shuffle must be True or False, got {shuffle!r}")
    return arguments.whole("malt.shard: seed", seed, 0)


def _picked(rows: Any, part: Any, what: str) -> Any:
    """Return the rows in `part`, which is a slice or an array of row numbers."""
    try:
        if not isinstance(part, slice) and isinstance(rows, Sequence):  # it takes no array of row numbers
            return rows.start + rows.step * part if isinstance(rows, range) else [rows[row] for row in part.tolist()]
        return getattr(rows, "iloc", rows)[part]  # a data frame would take row numbers for names of columns
    except (TypeError, KeyError):  # for example a sparse matrix in coordinate format
        raise TypeError(what + ", which cannot be sliced") from None
