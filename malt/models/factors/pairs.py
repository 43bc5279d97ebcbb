"""Pairs of a user and an item with their ratings: ids of any kind as numbers, and the ratings of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.data import Ratings
from malt.models.factors import numbered
from malt.session.collectives import allgather

Array = NDArray[Any]


def read(X: Array, y: Array) -> Ratings:
    """The ratings y of the pairs X, which are checked arrays, in their order. Local. ValueError: they are none."""
    if X.shape[1] != 2:
        raise ValueError(f"X must have 2 features, the ids of users and of items, got n_features={X.shape[1]}")
    if y.dtype.kind not in "biuf":
        raise ValueError(f"y must hold ratings, which are numbers, got {y.dtype}")
    (user_ids, users), (item_ids, items) = (np.unique(column, return_inverse=True) for column in ids(X))
    with np.errstate(over="ignore"):
        ratings = y.astype(np.float32)
    if not np.isfinite(ratings).all():
        raise ValueError(f"y must hold ratings that float32 can hold, got {np.abs(y).max():g}")
    return Ratings(users.astype(np.int32), items.astype(np.int32), ratings, user_ids, item_ids)


def ids(X: Array) -> tuple[Array, Array]:
    """The ids of the users and of the items of X: int64, or text as UTF-8. Local. ValueError: they are neither."""
    users, items = (_ids(name, column) for name, column in zip(("users", "items"), X.T, strict=True))
    return users, items


def _ids(name: str, column: Array) -> Array:
    found = np.array(column.tolist()) if column.dtype.kind in "OT" else column
    kind = found.dtype.kind if found.ndim == 1 else ""
    if kind == "U":
        return np.char.encode(found, "utf-8")
    if kind and kind in "biuf":
        with np.errstate(invalid="ignore"):
            numbers = found.astype(np.int64)
        if (numbers == found).all():
            return numbers
    elif kind == "S":
        return found
    raise ValueError(f"X must hold ids, which are integers or text: those of {name} are {column.dtype}")


def of_all_ranks(own: Ratings, widths: tuple[int, int]) -> Ratings:
    """The ratings of all ranks, in rank order. Collective. Those of a rank that fails in the call are missing.

    `widths`: the most bytes of the id of a user and of an item, on all ranks.
    """
    named = [_wide(names, nbytes) for names, nbytes in zip((own.user_ids, own.item_ids), widths, strict=True)]
    columns = [allgather(one) for one in (named[0], own.users, named[1], own.items, own.ratings)]
    whole = [one for one in zip(*columns, strict=True) if not any(part is None for part in one)]
    user_names, users, item_names, items, ratings = zip(*whole, strict=True)
    user_ids, item_ids = (np.unique(np.concatenate(names)) for names in (user_names, item_names))
    return Ratings(
        _renumbered(user_ids, user_names, users), _renumbered(item_ids, item_names, items), np.concatenate(ratings),
        user_ids, item_ids,
    )  # fmt: skip


def _wide(names: Array, nbytes: int) -> Array:
    """`names` as other ranks have them: text of that many bytes."""
    return names.astype(f"S{nbytes}") if names.dtype.kind == "S" else names


def _renumbered(ids: Array, names: Sequence[Array], numbers: Sequence[Array]) -> NDArray[np.int32]:
    """The numbers of all ranks, each an index of that rank's `names`, as indices of `ids`."""
    return np.concatenate([numbered(ids, name)[number] for name, number in zip(names, numbers, strict=True)])
