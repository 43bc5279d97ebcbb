"""Ratings of items by users, read once and mapped into memory from then on."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dstorm import Transport
from malt import session
from malt.agreement import agree, exchange, succeed
from malt.data import ratingfile, ratingtext
from malt.data.dealing import deal, inherit
from malt.data.ratingfile import StoredRatings
from malt.data.ratingtext import Ids
from malt.data.rowbuild import CLOCK_TICK_NS, Team, with_a_team
from malt.data.rowcache import Source


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
        dead = set(range(transport.size)) - exchange(transport, None).keys()
    return of_users(whole, inherit(shares(whole, transport.size), dead, transport.size) == transport.rank)


def open_ratings(path: str | os.PathLike[str], *, transport: Transport | None = None) -> Ratings:
    """All ratings of a file, in memory that the ranks of a host share. Collective. Else as `load_ratings`."""
    transport = transport or session.world().transport

    def check() -> tuple[str, dict[str, Any]]:
        name = os.fsdecode(path)
        return name, {"path": name}

    with transport.calling("malt.open_ratings"):
        name, _ = agree(transport, "malt.load_ratings", check)
        return Ratings(**vars(_shared(name, transport)))


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


def _shared(path: str, transport: Transport) -> StoredRatings:
    """All ratings, the same on all ranks: found or parsed by the first rank of each host, for all of them."""
    return with_a_team(transport, lambda team: _of_team(path, transport, team))


def _of_team(path: str, transport: Transport, team: Team) -> StoredRatings:
    source = succeed(transport, lambda: Source.of(path))
    kept = succeed(transport, lambda: _made(source) if team.index == 0 else None)
    place = team.exchange(None if kept is None else kept[0])[team.ranks[0]]

    def opened() -> StoredRatings:
        found = None
        if place is not None:
            found = ratingfile.read(place, source, is_verified=True)
        return found or (kept[1] if kept else _parsed(source))

    stored = succeed(transport, opened)
    team.check_same(path, stored.identity())
    return stored


def _made(source: Source) -> tuple[str | None, StoredRatings]:
    """The ratings, and where they are kept for the other ranks, if anywhere. Local."""
    found = ratingfile.find(source)
    if found is not None:
        return found
    stored = _parsed(source)
    return ratingfile.keep(source, stored), stored


def _parsed(source: Source) -> StoredRatings:
    """The ratings of the file, which stays in the state `source` meanwhile. Raises OSError, ValueError."""
    if 0 <= time.time_ns() - source.mtime_ns < CLOCK_TICK_NS:
        time.sleep(CLOCK_TICK_NS / 1e9)  # written to just now: once more would not show in its time
    lines = ratingtext.read(source.path)
    if Source.of(source.path) != source:
        raise ValueError(f"{source.path}: the file changed while it was read: load it again once it is written")
    return StoredRatings.of(lines)
