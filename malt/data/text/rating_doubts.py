"""Detects columns of a file of ratings that are in the wrong order, once all of it is read.

A file in another order must not be read as if it were in the usual one. So anything that no file in the usual order
contains is an error.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from malt.data.text.rating_form import REMEDY
from malt.data.text.rating_text import Ids, Lines

_MISSING: Final = {b"nan", b"NaN", b"NA", b"N/A", b"<NA>", b"null", b"NULL", b"None", b"\\N"}
"""How programs write a value that is missing."""
_NUMBER: Final = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")
_FEWEST: Final = 4
"""The fewest lines in which one with the number of the others is taken for that number."""


def doubt(user_ids: Ids, item_ids: Ids, lines: Lines) -> str:
    """Return a message on what is wrong with the columns of a file without titles, or "" if nothing seems to be. Pure.

    `user_ids`, `item_ids`: the different ids, ascending.
    """
    users, items, ratings = lines.users, lines.items, lines.ratings
    if _are_ratings(user_ids) and item_ids.dtype.kind == "i" and (ratings == np.floor(ratings)).all():
        return f"users are called {_listed(user_ids)}, and all ratings are integers: is the rating first? {REMEDY}"
    if user_ids.dtype.kind == item_ids.dtype.kind == "i" and len(ratings) >= _FEWEST:
        is_largest = users[0] == user_ids[-1] and items[0] == item_ids[-1] and ratings[0] > ratings[1:].max()
        if is_largest and ratings[0] == len(ratings) - 1:
            numbers = f"{users[0]} users, {items[0]} items and {ratings[0]:.0f} ratings"
            return f"the first line seems to count {numbers}: remove it, or, where it is a rating, {REMEDY}"
    return ""


def missing_among(ids: Ids) -> str:
    """The mark of a missing value, where it is the only one of these ids that is no number; or "". Pure."""
    if ids.dtype.kind == "i":
        return ""
    strange = {name for name in ids.tolist() if not _NUMBER.fullmatch(name)}
    return min(strange).decode() if strange and strange <= _MISSING and len(strange) < ids.size else ""


def _are_ratings(ids: Ids) -> bool:
    """Return whether all are numbers, and some of them no whole ones."""
    if ids.dtype.kind == "i" or not all(map(_NUMBER.fullmatch, ids.tolist())):
        return False
    numbers = ids.astype(np.float64)
    return bool((numbers != np.floor(numbers)).any())


def _listed(ids: Ids) -> str:
    return ", ".join(name.decode() for name in ids[:3].tolist())
