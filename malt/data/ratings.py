"""Ratings of items by users, read once and mapped into memory from then on."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm import Transport
from malt.data import loading, ratingtext
from malt.data.dealing import deal, inherit
from malt.data.loading import Format
from malt.data.ratingtext import Ids, Lines
from malt.data.store import Contents, Piece, Store
from malt.session import session
from malt.world.agreement import agree, exchange


@dataclass(frozen=True, eq=False)
class Ratings:
    """Some ratings of a file, or all, by user, those of each in the order of the file. All arrays are read-only."""

    users: NDArray[np.int32]
    """Who rated: a number in `user_ids`; ascending."""
    items: NDArray[np.int32]
    """What was rated: a number in `item_ids`."""
    ratings: NDArray[np.float32]
    user_ids: Ids
    """Every user of the whole file as named there, the same on all ranks: ascending; int64 where all are whole
    numbers, else the bytes of their names."""
    item_ids: Ids
    """Every item, likewise."""


def load_ratings(path: str | os.PathLike[str], *, transport: Transport | None = None) -> Ratings:
    """This rank's ratings of a file: all those of some users, dealt so that ranks have about equally many. Collective.

    A line is `user item rating`, with white space, tabs, commas or `::` between: one of them in all of a file, found
    from its first lines. A fourth word, a timestamp, is left out, and so is a first line whose third word is no number.
    Users and items may be called anything without that separator. A rating has a decimal point: what looks like a
    decimal comma is an error.
    `path`: plain text, or .gz, .bz2 or .xz. It is parsed once and kept beside the file (or in ~/.cache/malt, or else
    in memory); later loads map that into memory until the file's size or time changes.

    The same error on all ranks: OSError, the file cannot be read; ValueError, a line is no rating or the rating not
    finite (the message starts with FILE:LINE), the file is empty, or differs between hosts.
    """
    transport = transport or session.world().transport
    with transport.calling("malt.load_ratings"):
        whole = open_ratings(path, transport=transport)
        failed_ranks = set(range(transport.size)) - exchange(transport, None).keys()
    return of_users(whole, inherit(shares(whole, transport.size), failed_ranks, transport.size) == transport.rank)


def open_ratings(path: str | os.PathLike[str], *, transport: Transport | None = None) -> Ratings:
    """All ratings of a file, in memory that the ranks of a host share. Collective. Else as `load_ratings`."""
    transport = transport or session.world().transport

    def check() -> tuple[str, dict[str, Any]]:
        name = os.fsdecode(path)
        return name, {"path": name}

    with transport.calling("malt.open_ratings"):
        name, _ = agree(transport, "malt.load_ratings", check)
        return _checked(loading.shared(name, FORMAT, transport))


def owners(ratings: Ratings, failed: Collection[int] = ()) -> NDArray[np.int32]:
    """The rank to which `load_ratings` deals each user, once the ranks of `failed` have failed. Local, once
    initialized."""
    ranks = session.size()
    return inherit(shares(ratings, ranks), failed, ranks)


def shares(ratings: Ratings, ranks: int) -> NDArray[np.int32]:
    """The rank of each user, by which `load_ratings` deals. Local."""
    return deal(np.bincount(ratings.users, minlength=ratings.user_ids.size), ranks)


def of_users(ratings: Ratings, chosen: NDArray[np.bool_]) -> Ratings:
    """The ratings of the chosen users, a mask of all: copies. Local."""
    mine = chosen[ratings.users]
    users, items, values = ratings.users[mine], ratings.items[mine], ratings.ratings[mine]
    for column in (users, items, values):
        column.flags.writeable = False
    return Ratings(users, items, values, ratings.user_ids, ratings.item_ids)


def _numbered(lines: Lines) -> Ratings:
    """All ratings of a file, the users and items numbered by their ids in ascending order. Local."""
    user_ids, users = np.unique(lines.users, return_inverse=True)
    item_ids, items = np.unique(lines.items, return_inverse=True)
    order = np.argsort(users.reshape(-1), kind="stable")
    numbers = [each.reshape(-1)[order].astype(np.int32) for each in (users, items)]
    return Ratings(numbers[0], numbers[1], lines.ratings[order], user_ids, item_ids)


def _read(path: str, part: int, parts: int) -> Ratings | None:
    """The first part is all of the file: the number of a user is known only when all ids are. Local."""
    return _numbered(ratingtext.read(path)) if part == 0 else None


def _report(part: Ratings | None) -> dict[str, list[Any]]:
    """dtype and length of each column."""
    return {} if part is None else {name: [array.dtype.str, array.size] for name, array in vars(part).items()}


def _pieces(part: Ratings | None, contents: Contents, before: list[Any]) -> Iterator[Piece]:
    for name in contents.columns if part else ():
        yield name, 0, getattr(part, name)


def _checked(store: Store) -> Ratings:
    """The ratings in a store. Raises ValueError, TypeError where they are none."""
    ratings = Ratings(**store.columns)
    numbers = (ratings.users, ratings.items, ratings.ratings)
    if [column.dtype.str for column in numbers] != ["<i4", "<i4", "<f4"] or len({each.size for each in numbers}) > 1:
        raise ValueError("other columns than of ratings")
    return ratings


FORMAT: Final = Format(
    kind="ratings",
    read=_read,
    report=_report,
    combine=lambda path, reports: Contents(columns=reports[0], facts={}),
    pieces=_pieces,
    check=_checked,
)
