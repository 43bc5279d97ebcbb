"""Ratings with a known solution, made of factors of low rank, with noise: a few, or as many as a film site has."""

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

FILM_USERS: Final = 6000
FILM_ITEMS: Final = 3600
FILM_RANK: Final = 16
FILM_TRAINED: Final = 900_000
FILM_TESTED: Final = 100_000
_FILM_NOISE: Final = 0.8
"""The standard deviation of the noise, before ratings are rounded to integers from 1 to 5."""
_BIAS_SPREAD: Final = 0.4
"""The standard deviation of the biases of users, and of those of items."""
_FACTOR_SPREAD: Final = 0.5
"""The standard deviation of what the factors add."""
_LEAST: Final = 20
"""The ratings that each user has beside a random number of them."""
_HEAD: Final = 30
"""The popularity of item number i, counted from 0, is a power law: 1 / (i + _HEAD)."""

Pair = tuple[malt.Ratings, malt.Ratings]


def planted(seed: int) -> Pair:
    """Training ratings and test ratings, around a mean of 3. The seed alone determines them. Local."""
    generator = np.random.default_rng(seed)
    user_rows = generator.standard_normal((USERS, RANK)) / RANK**0.25
    item_rows = generator.standard_normal((ITEMS, RANK)) / RANK**0.25
    values = 3 + user_rows @ item_rows.T + NOISE * generator.standard_normal((USERS, ITEMS))
    values += 0.3 * generator.standard_normal((USERS, 1)) + 0.3 * generator.standard_normal(ITEMS)
    drawn = generator.random((USERS, ITEMS))
    is_train = drawn < RATED * (1 - TESTED)
    return _chosen(values, is_train), _chosen(values, (drawn < RATED) & ~is_train)


def film(seed: int) -> Pair:
    """Training ratings and test ratings like those of a film site: integers from 1 to 5. Local.

    A few items have many ratings, and so have a few users. Each pair of a user and an item is rated at most once. The
    seed alone determines all.
    """
    generator = np.random.default_rng(seed)
    users, items = _rated(generator)
    scales = np.sqrt(_FACTOR_SPREAD * _falling(FILM_RANK))
    user_rows, item_rows = (scales * generator.standard_normal((n, FILM_RANK)) for n in (FILM_USERS, FILM_ITEMS))
    user_bias, item_bias = (_BIAS_SPREAD * generator.standard_normal(n) for n in (FILM_USERS, FILM_ITEMS))
    values = 3.6 + user_bias[users] + item_bias[items] + _FILM_NOISE * generator.standard_normal(users.size)
    for user_factor, item_factor in zip(user_rows.T, item_rows.T, strict=True):
        values += user_factor[users] * item_factor[items]
    stars = np.clip(np.rint(values), 1, 5).astype(np.float32)
    train, test = np.split(generator.permutation(users.size), [FILM_TRAINED])
    ids = np.arange(FILM_USERS), np.arange(FILM_ITEMS)
    made = [malt.Ratings(users[part], items[part], stars[part], *ids) for part in map(np.sort, (train, test))]
    return made[0], made[1]


def _rated(generator: np.random.Generator) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The users and the items of all ratings, sorted by user."""
    whole = FILM_TRAINED + FILM_TESTED - _LEAST * FILM_USERS
    activity = generator.lognormal(0, 1.1, FILM_USERS)
    counts = np.minimum(_LEAST + generator.multinomial(whole, activity / activity.sum()), FILM_ITEMS // 2)
    while missing := FILM_TRAINED + FILM_TESTED - int(counts.sum()):
        counts += np.bincount(generator.integers(FILM_USERS, size=missing), minlength=FILM_USERS)
        counts = np.minimum(counts, FILM_ITEMS // 2)
    popularity = generator.permutation(1 / (np.arange(FILM_ITEMS) + _HEAD))
    # The smallest of exponential numbers, divided by weights, are a draw by these weights without replacement.
    keys = (generator.exponential(size=FILM_ITEMS) / popularity for _ in range(FILM_USERS))
    items = [np.sort(np.argpartition(key, count)[:count]) for key, count in zip(keys, counts, strict=True)]
    return np.repeat(np.arange(FILM_USERS, dtype=np.int32), counts), np.concatenate(items).astype(np.int32)


def _falling(count: int) -> NDArray[np.float64]:
    """Weights of `count` factors, each lower than the one before, whose squares sum to 1."""
    weights: NDArray[np.float64] = 1 / np.arange(1, count + 1)
    weights /= np.sqrt(np.square(weights).sum())
    return weights


def _chosen(values: NDArray[np.float64], where: NDArray[np.bool_]) -> malt.Ratings:
    users, items = np.nonzero(where)
    return malt.Ratings(
        users.astype(np.int32), items.astype(np.int32), values[where].astype(np.float32),
        np.arange(USERS), np.arange(ITEMS),
    )  # fmt: skip
