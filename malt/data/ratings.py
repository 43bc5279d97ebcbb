"""Ratings of items by users: files parsed once, later mapped into memory."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dstorm import Transport
from malt.data import loading
from malt.data.dealing import deal, inherit
from malt.data.loading import Format
from malt.data.reader_group import readers
from malt.data.store import Contents, Piece, Store
from malt.data.text import rating_doubts, rating_text
from malt.data.text.rating_text import Ids, Lines
from malt.files import heartbeats
from malt.files.paths import text_of
from malt.session import session
from malt.session.world.agreement import agree

_PIECE: Final = 1 << 18
"""The words that are numbered at once."""


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of a file, some or all. They are sorted by user; those of a user are in the order of the file.

    All arrays are read-only.
    """

    users: NDArray[np.int32]
    """The user of each rating, as an index of `user_ids`; ascending."""
    items: NDArray[np.int32]
    """The item of each rating, as an index of `item_ids`."""
    ratings: NDArray[np.float32]
    """The value of each rating."""
    user_ids: Ids
    """The ids of all users of the file, ascending, the same on all ranks. int64 if all are integers, else the
    bytes of their names."""
    item_ids: Ids
    """The ids of all items of the file, of the same form."""


def load_ratings(path: str | os.PathLike[str], *, transport: Transport | None = None) -> Ratings:
    """Return this rank's ratings of a file: all ratings of its users. Collective.

    Users are dealt to ranks so that all have about the same number of ratings. Users of failed ranks are dealt to the
    live ones.

    A line is `user item rating`, separated by white space, tabs, commas or `::`. A file has one separator, detected
    from its first lines. A fourth word, the timestamp, is an integer, and is ignored. Titles in the first line, such as
    userId, movieId and rating, determine the columns: in any order, possibly among others, which are ignored. Names of
    users and items may contain anything except the separator, and may be quoted between commas, as in CSV. A rating has
    a decimal point; a decimal comma is an error.

    Anything ambiguous is an error: titles that do not name the columns; comments, and Matrix Market files; without
    titles, ratings that look like timestamps, users that look like ratings, and a first line that counts the others.

    `path`: plain text, or .gz, .bz2 or .xz. It is parsed once, and the result is kept beside the file, or else in
    ~/.cache/malt, or else in memory. Later loads map that into memory, until the file changes or another one takes its
    place.

    All ranks raise the same error. OSError: the file cannot be read. ValueError: a line is not a rating or its rating
    is not finite (the message starts with FILE:LINE); the file is empty, is not clear, or differs between hosts.
    """
    transport = transport or session.world().reading
    with transport.calling("malt.load_ratings"):
        whole = open_ratings(path, transport=transport)
        failed_ranks = set(range(transport.size)) - set(readers(transport))
    return of_users(whole, inherit(shares(whole, transport.size), failed_ranks, transport.size) == transport.rank)


def open_ratings(path: str | os.PathLike[str], *, transport: Transport | None = None) -> Ratings:
    """Return all ratings of a file, in memory that the ranks of a host share. Collective.

    The format and the errors are those of `load_ratings`.
    """
    transport = transport or session.world().reading

    def check() -> tuple[str, dict[str, Any]]:
        """Return the path that this rank asks for, and the description that must be the same on all ranks. Local."""
        name = text_of(path)
        return name, {"path": name}

    with transport.calling("malt.open_ratings"):
        name, _ = agree(transport, "malt.load_ratings", check)
        return _checked(loading.shared(name, FORMAT, transport))


def owners(ratings: Ratings, failed: Collection[int] = ()) -> NDArray[np.int32]:
    """Return the rank to which `load_ratings` deals each user, once the ranks of `failed` have failed. Local.

    The session is initialized.
    """
    ranks = session.size()
    return inherit(shares(ratings, ranks), failed, ranks)


def shares(ratings: Ratings, ranks: int) -> NDArray[np.int32]:
    """Return the rank to which `load_ratings` deals each user, without failures. Local."""
    return deal(np.bincount(ratings.users, minlength=ratings.user_ids.size), ranks)


def of_users(ratings: Ratings, chosen: NDArray[np.bool_]) -> Ratings:
    """Return the ratings of the chosen users, as copies. Local. `chosen` is a mask of all users."""
    mine = chosen[ratings.users]
    users, items, values = ratings.users[mine], ratings.items[mine], ratings.ratings[mine]
    for column in (users, items, values):
        column.flags.writeable = False
    return Ratings(users, items, values, ratings.user_ids, ratings.item_ids)


def _numbered(lines: Lines) -> Ratings:
    """Return all ratings of a file, with users and items numbered by their ids in ascending order. Local."""
    heartbeats.give()
    (user_ids, users), (item_ids, items) = _ids(lines.users), _ids(lines.items)
    order = np.argsort(users, kind="stable")
    heartbeats.give()
    return Ratings(users[order], items[order], lines.ratings[order], user_ids, item_ids)


def _ids(words: Ids) -> tuple[Ids, NDArray[np.int32]]:
    """Return the different words, ascending, and the number of each word among them. Local.

    It works in pieces, as the other ranks wait: each of them gives a heartbeat.
    """
    found = []
    for start in range(0, words.size, _PIECE):
        found.append(np.unique(words[start : start + _PIECE], return_inverse=True))
        heartbeats.give()
    ids = np.unique(np.concatenate([some for some, _ in found]))
    heartbeats.give()
    numbers = [np.searchsorted(ids, some).astype(np.int32)[place.reshape(-1)] for some, place in found]
    heartbeats.give()
    return ids, np.concatenate(numbers)


def _read(path: str, part: int, parts: int) -> Ratings | None:
    """Return all ratings as part 0, None as any other part. Local.

    The number of a user depends on all ids of the file.
    """
    if part > 0:
        return None
    lines, form = rating_text.read(path)
    found = _numbered(lines)
    for name, ids in (("user", found.user_ids), ("item", found.item_ids)):
        if mark := rating_doubts.missing_among(ids):
            raise ValueError(f"{path}: {name} {mark!r} among numbers seems to be a missing value: leave out such lines")
    if not form.titles and (doubt := rating_doubts.doubt(found.user_ids, found.item_ids, lines)):
        raise ValueError(f"{path}: {doubt}")
    return found


def _report(part: Ratings | None) -> dict[str, list[Any]]:
    """Return the dtype and length of each column of a part."""
    return {} if part is None else {name: [array.dtype.str, array.size] for name, array in vars(part).items()}


def _pieces(part: Ratings | None, contents: Contents, before: list[Any]) -> Iterator[Piece]:
    for name in contents.columns if part else ():
        yield name, 0, getattr(part, name)


def _checked(store: Store) -> Ratings:
    """Return the ratings in `store`. Local. ValueError, TypeError: its columns are not of ratings."""
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
