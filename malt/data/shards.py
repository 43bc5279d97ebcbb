"""Shards: the rows of each rank."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm.words import shown
from malt.data import speeds
from malt.session import session
from malt.session.world.crew import Dealt, dealt
from malt.session.world.world import World
from vol import arguments


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the first of the rows of `rank`, of `count` rows, and the one after the last. Local.

    The numbers of rows of two ranks differ by at most one.
    """
    return count * rank // size, count * (rank + 1) // size


def living_rows(count: int, rank: int, ranks: Sequence[int], failed: Collection[int]) -> NDArray[np.intp]:
    """Return the rows that `rank`, one of `ranks`, has once those of `failed` have failed, ascending. Local.

    These are its own rows, and an equal part of the rows of each failed rank. The order of failures does not matter.
    """
    return _joined(_shared(count, rank, dealt(ranks, failed)))


def _parts(count: int, ranks: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Return the first of the rows of each of `ranks`, and the one after the last."""
    return {rank: bounds(count, place, len(ranks)) for place, rank in enumerate(ranks)}


def _shared(count: int, rank: int, dealt: Dealt) -> list[tuple[int, int]]:
    """Return the rows of `rank`: the first of each piece, and the one after the last.

    Its own part stands first, then a piece of that of each rank of which it is an heir.
    """
    parts = _parts(count, dealt.ranks)
    pieces = [parts.get(rank, (0, 0))]  # (0, 0): it is about to leave, as the job shrinks
    for failed, heirs in dealt.heirs.items():
        if rank in heirs:
            first, last = parts[failed]
            start, stop = bounds(last - first, heirs.index(rank), len(heirs))
            pieces.append((first + start, first + stop))
    return pieces


def _joined(parts: Collection[tuple[int, int]]) -> NDArray[np.intp]:
    """Return the rows of all parts, ascending."""
    return np.sort(np.concatenate([np.arange(*part) for part in parts]))


def rows_of(count: int, rank: int, failed: Collection[int] = ()) -> NDArray[np.intp]:
    """Return the row numbers that malt.shard gives to `rank`, once the ranks of `failed` have failed. Local.

    They are ascending: not shuffled. The session is initialized. ValueError: `rank` is in `failed`, or not one of the
    session; `count` is negative. TypeError: one of them is not an integer.
    """
    world = session.world()
    count = arguments.whole("malt.data.rows_of: count", count, 0)
    if arguments.whole("malt.data.rows_of: rank", rank, 0) >= world.transport.size:
        raise ValueError(f"malt.data.rows_of: there is no rank {rank} among {world.transport.size}")
    if rank in failed:
        raise ValueError(f"malt.data.rows_of: rank {rank} is one of those that have failed, and has no rows")
    return living_rows(count, rank, world.dealt.ranks, failed)


def shard(rows: Any, *, shuffle: bool = False, seed: int = 0, by_speed: bool = False) -> Any:
    """Return this rank's part of `rows`. Local, but Collective with `by_speed`. The session is initialized.

    `rows`: a number of rows, an array, a data frame, or any sequence that can be sliced. For a number the result is a
    slice of row numbers. For the others it is the rows of that slice, a view if slicing returns one. With `shuffle`, or
    after a rank has failed, the result is an array of row numbers for a number or a range, a copy for an array, and a
    list for another sequence. With more ranks than rows, some ranks get none.

    The parts of all live ranks cover each row once. Call it again in every epoch, because ranks may fail.

    `shuffle`: deal the rows in a random order, for rows that are sorted, by label for example. The order depends on
    the number of rows and `seed` alone. So X and y still match if each is sharded by a call of its own.

    `by_speed`: deal the rows in proportion to the speed of the ranks, as an array of row numbers. The speed of a rank
    is the number of rows that its last such call returned, divided by the time until its next call. The first call
    deals equally. Make one call per epoch, with the number of rows, and index all arrays with its result.

    All ranks must pass the same rows, in the same order. Later collective calls compare the number of rows, the seed,
    and a checksum of the rows, for the first 16 calls with rows. If they differ, all ranks raise a ValueError there.
    The checksum covers all rows, or a sample if there are many. Rows of unknown classes cannot be compared: a
    RuntimeWarning, on the lowest rank, names the class.

    TypeError: `rows` is neither a number nor can be sliced by rows, or another argument has a wrong type.
    ValueError: `rows` or `seed` is negative; with `by_speed`, on all ranks: the number of rows differs.
    """
    world = session.world()
    world.transport.poll_failures()
    arguments.truth("malt.shard: by_speed", by_speed)

    def check() -> tuple[int, bool, int]:
        """The rows, whether they are a number, and the seed. Local. TypeError, ValueError: as above."""
        return *_count(rows), _checked_seed(shuffle, seed)

    if by_speed:
        (count, is_count, seed), part = _by_speed(world, check)
    else:
        count, is_count, seed = check()
        part = _equal(world, count)
    if shuffle:
        part = np.random.default_rng(seed).permutation(count)[part]
    mine = part if is_count else _picked(rows, part)
    if world.transport.size > 1:
        unknown = world.notes.note(count, seed if shuffle else None, None if is_count else rows)
        if unknown and world.is_lowest:
            warnings.warn(f"malt.shard cannot compare rows of class {unknown} between ranks: all must give the same "
                          "rows, in the same order", RuntimeWarning, stacklevel=2)  # fmt: skip
    return mine


def _equal(world: World, count: int) -> Any:
    pieces = _shared(count, world.rank, world.dealt)
    return slice(*pieces[0]) if len(pieces) == 1 else _joined(pieces)


def _by_speed(
    world: World, check: Callable[[], tuple[int, bool, int]]
) -> tuple[tuple[int, bool, int], NDArray[np.intp]]:  # fmt: skip
    """Return what check() does, and this rank's rows by the speed of all ranks since the last call. Collective."""
    trained, clock = world.training_speed, world.transport.clock
    speed = trained.speed(clock())

    def described() -> tuple[tuple[int, bool, int], Mapping[str, Any]]:
        """Return the result of `check`, and the description that must be the same on all ranks. Local."""
        checked = check()
        return checked, {"rows": checked[0], "_speed": speed}

    with world.transport.calling("malt.shard"):
        checked, reports = world.notes.agree(world.transport, "malt.shard", described)
    found = [reports[rank]["_speed"] if rank in reports else None for rank in range(world.transport.size)]
    numbers = speeds.deal(checked[0], speeds.guessed(found))
    trained.begin(clock(), numbers[world.rank])
    return checked, np.arange(*speeds.parts(numbers)[world.rank])


def _refusal(rows: Any) -> str:
    return f"malt.shard takes a number of rows, or an array or list of rows, got a {type(rows).__name__}"


def _count(rows: Any) -> tuple[int, bool]:
    """Return the number of rows, and whether `rows` is only that number."""
    what = _refusal(rows)
    if isinstance(rows, (str, bytes, Mapping, Set)):
        raise TypeError(what)
    is_count = hasattr(rows, "__index__") and not getattr(rows, "shape", ())
    try:
        count = index(rows) if is_count else rows.shape[0] if hasattr(rows, "shape") else len(rows)
    except (TypeError, IndexError):
        raise TypeError(what) from None
    if isinstance(rows, bool) or count < 0:
        raise ValueError(f"malt.shard takes a number of rows of at least 0, got {shown(rows)}")
    return count, is_count


def _checked_seed(shuffle: Any, seed: Any) -> int:
    arguments.truth("malt.shard: shuffle", shuffle)
    return arguments.whole("malt.shard: seed", seed, 0)


def _picked(rows: Any, part: Any) -> Any:
    """Return the rows in `part`, which is a slice or an array of row numbers."""
    try:
        if not isinstance(part, slice) and isinstance(rows, Sequence):  # it takes no array of row numbers
            return rows.start + rows.step * part if isinstance(rows, range) else [rows[row] for row in part.tolist()]
        return getattr(rows, "iloc", rows)[part]  # a data frame would take row numbers for names of columns
    except (TypeError, KeyError):  # for example a sparse matrix in coordinate format
        raise TypeError(_refusal(rows) + ", which cannot be sliced") from None
