"""Which rows are mine."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.session import session
from vol import arguments


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """First and last-plus-one of `rank`'s rows of `count`: contiguous, and at most one apart in number. Pure."""
    return count * rank // size, count * (rank + 1) // size


def living_rows(count: int, rank: int, size: int, failed_ranks: Collection[int]) -> NDArray[np.intp]:
    """The rows of `rank`, ascending, after the ranks of `failed_ranks` have died: its own, and a part of those of each
    of them, dealt to the living alike. Who died first does not matter. Pure."""
    return _joined([bounds(count, rank, size), *_inherited(count, rank, size, failed_ranks)])


def _inherited(count: int, rank: int, size: int, failed_ranks: Collection[int]) -> list[tuple[int, int]]:
    """First and last-plus-one of what `rank` has of the rows of each of `failed_ranks`."""
    living = sorted(set(range(size)) - set(failed_ranks))
    place = living.index(rank)
    parts = []
    for lost in sorted(failed_ranks):
        first, last = bounds(count, lost, size)
        start, stop = bounds(last - first, place, len(living))
        parts.append((first + start, first + stop))
    return parts


def _joined(parts: Collection[tuple[int, int]]) -> NDArray[np.intp]:
    """The rows of all parts, ascending."""
    return np.sort(np.concatenate([np.arange(*part) for part in parts]))


def rows_of(count: int, rank: int, failed: Collection[int] = ()) -> NDArray[np.intp]:
    """The row numbers that malt.shard deals to `rank`, ascending, once the ranks of `failed` have failed; not shuffled.
    Local, once initialized. ValueError: `rank` is among `failed`."""
    return living_rows(count, rank, session.size(), failed)


def shard(rows: Any, *, shuffle: bool = False, seed: int = 0) -> Any:
    """This rank's part of `rows`. Local, once initialized.

    Of a number of rows: a slice; shuffled, or once a rank has died, an array of row numbers. Of an array, a data frame,
    or anything that has a length and can be sliced: its rows, a view where slicing gives one; shuffled, or once a rank
    has died, a copy (of a range an array, of another sequence a list). The parts of all who live cover each row once,
    so call it again every epoch. More ranks than rows: some parts are empty.

    `shuffle`: deal them in a random order, which is one and the same for a number of rows and a `seed`: X and y that
    are sharded apart still match. For rows that stand in an order, of label say.

    All ranks must give the same array: its length, dtype and a checksum of some elements are compared at the collective
    calls that follow, which then raise a ValueError on all ranks; of the first 16 arrays.

    TypeError: neither a number nor what can be sliced by rows; ValueError: a negative number; `shuffle`, `seed`.
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
    """How many rows there are, and whether they are but a number."""
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
    """Those `rows` that `part` names: a slice, or an array of row numbers."""
    try:
        if not isinstance(part, slice) and isinstance(rows, Sequence):  # takes slices, but no array of row numbers
            return rows.start + rows.step * part if isinstance(rows, range) else [rows[row] for row in part.tolist()]
        return getattr(rows, "iloc", rows)[part]  # a data frame takes row numbers for names of columns
    except (TypeError, KeyError):  # a generator with a length, a sparse matrix in coordinates
        raise TypeError(what + ", which cannot be sliced") from None
