"""Which rows are mine."""

from __future__ import annotations

from operator import index
from typing import Any

from malt import session


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """First and last-plus-one of `rank`'s rows of `count`: contiguous, and at most one apart in number. Pure."""
    return count * rank // size, count * (rank + 1) // size


def shard(rows: Any) -> Any:
    """This rank's part of `rows`. Local, once initialized.

    Of a number of rows: a slice. Of an array, or anything that has a length and can be sliced: its rows, a view
    where slicing gives one. The parts of all ranks cover each row once. More ranks than rows: some parts are empty.
    TypeError: neither a number nor an array; ValueError: a negative number.
    """
    world = session.world()
    is_count = hasattr(rows, "__index__") and not getattr(rows, "shape", ())
    try:
        count = index(rows) if is_count else rows.shape[0] if hasattr(rows, "shape") else len(rows)
    except (TypeError, IndexError):
        raise TypeError(f"malt.shard takes a number of rows or an array, got {rows!r}") from None
    if isinstance(rows, bool) or count < 0:
        raise ValueError(f"malt.shard takes a number of rows from 0 up, got {rows!r}")
    part = slice(*bounds(count, world.rank, world.size))
    return part if is_count else rows[part]
