"""Clicks on advertisements, made of the seed: categories, hashed to a million features, as of a search engine's log."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

import malt

FEATURES: Final = 1_000_000
TRAINED: Final = 200_000
TESTED: Final = 50_000
_FIELDS: Final = (
    # values, and the standard deviation of what they add to the log-odds
    (100_000, 0.1),  # user
    (50_000, 0.1),  # query
    (2_000, 0.5),  # advertisement
    (500, 0.7),  # advertiser
    (20_000, 0.1),  # address that is shown
    (10, 0.5),  # age and sex
    (6, 0.7),  # place and number of places
)
_WORDS, _WORD_SPREAD, _WORDS_IN_A_ROW = 5_000, 0.4, 8
"""Words of the query and the title."""
VALUES: Final = len(_FIELDS) + _WORDS_IN_A_ROW
"""Of a row, at most."""
_GROUP, _ADVERTISER, _MATCH = 5, 3, 3.0
"""Some groups of age and sex like some advertisers more than either says alone: no sum of weights says so."""
_BASE: Final = -2.5
"""The log-odds of a click where nothing else is known."""
_EXPONENT: Final = 1.1
"""Of the power law of how often a value occurs."""

Numbers = NDArray[np.int64]


def clicks(seed: int) -> tuple[malt.Dataset, malt.Dataset]:
    """Training rows and test rows, of label +1 where there was a click. The seed alone determines them. Local."""
    generator = np.random.default_rng(seed)
    rows = TRAINED + TESTED
    sizes = [*(size for size, _ in _FIELDS), *[_WORDS] * _WORDS_IN_A_ROW]
    values = np.stack([_power_law(generator, size, rows) for size in sizes], axis=1)
    odds = np.full(rows, _BASE)
    for place, (size, spread) in enumerate(_FIELDS):
        odds += spread * generator.standard_normal(size)[values[:, place]]
    words = _WORD_SPREAD * generator.standard_normal(_WORDS)
    odds += words[values[:, len(_FIELDS) :]].sum(axis=1)
    likes, kind = (generator.choice([0, 1], _FIELDS[place][0]) for place in (_GROUP, _ADVERTISER))
    odds += _MATCH * likes[values[:, _GROUP]] * kind[values[:, _ADVERTISER]]
    clicked = generator.random(rows) < 1 / (1 + np.exp(-odds))
    X = _hashed(values, np.array([*range(len(_FIELDS)), *[len(_FIELDS)] * _WORDS_IN_A_ROW]))
    return _dataset(X[:TRAINED], clicked[:TRAINED]), _dataset(X[TRAINED:], clicked[TRAINED:])


def _power_law(generator: np.random.Generator, size: int, count: int) -> Numbers:
    """Values below `size`, of which number i, from 0, occurs in proportion to (i + 10)^-_EXPONENT."""
    shares = np.cumsum((np.arange(size) + 10.0) ** -_EXPONENT)
    values: Numbers = np.searchsorted(shares, shares[-1] * generator.random(count), side="right")
    return values


def _hashed(values: Numbers, fields: Numbers) -> Any:
    """The matrix with a 1 for each value of a row, at the hash of its field and number."""
    keys = (values + (fields << 32)).astype(np.uint64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # of splitmix64
        keys = (keys ^ (keys >> np.uint64(shift))) * np.uint64(factor)
    columns = ((keys ^ (keys >> np.uint64(31))) % np.uint64(FEATURES)).astype(np.int32)
    starts = np.arange(0, columns.size + 1, columns.shape[1], dtype=np.int32)
    X = scipy.sparse.csr_array(
        (np.ones(columns.size, np.float32), columns.reshape(-1), starts), shape=(len(columns), FEATURES)
    )
    X.sum_duplicates()
    X.data[:] = 1
    return X


def _dataset(X: Any, clicked: NDArray[np.bool_]) -> malt.Dataset:
    y = np.where(clicked, np.float32(1), np.float32(-1))
    return malt.Dataset(X, y, slice(0, len(y)), labels=(0.0, 1.0), zero_based=True, nonzeros=X.nnz)
