"""Ratings with a known solution: made of factors of low rank, with noise."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

import malt

USERS: Final = 2000
ITEMS: Final = 500
RANK: Final = 4
NOISE: Final = 0.3
"""The root mean squared error of the true factors. The ratings have a standard deviation of about 1."""
RATED: Final = 0.2
"""The share of all pairs of a user and an item that are rated."""
TESTED: Final = 0.1
"""The share of the ratings that is kept for the test."""


def planted(seed: int) -> tuple[malt.Ratings, malt.Ratings]:
    """Training ratings and test ratings, around a mean of 3. The seed alone determines them. Local."""
    generator = np.random.default_rng(seed)
    user_rows = generator.standard_normal((USERS, RANK)) / RANK**0.25
    item_rows = generator.standard_normal((ITEMS, RANK)) / RANK**0.25
    values = 3 + user_rows @ item_rows.T + NOISE * generator.standard_normal((USERS, ITEMS))
    values += 0.3 * generator.standard_normal((USERS, 1)) + 0.3 * generator.standard_normal(ITEMS)
    drawn = generator.random((USERS, ITEMS))
    is_train = drawn < RATED * (1 - TESTED)
    return _chosen(values, is_train), _chosen(values, (drawn < RATED) & ~is_train)


def _chosen(values: NDArray[np.float64], where: NDArray[np.bool_]) -> malt.Ratings:
    users, items = np.nonzero(where)
    return malt.Ratings(
        users.astype(np.int32), items.astype(np.int32), values[where].astype(np.float32),
        np.arange(USERS), np.arange(ITEMS),
    )  # fmt: skip
