"""Ratings that are made from a seed."""

import numpy as np
import pytest

from apps.mf.planted import NOISE, film, planted


def test_planted_ratings_are_low_rank_and_noise():
    train, test = planted(3)
    again, _ = planted(3)
    assert (train.ratings == again.ratings).all() and planted(4)[0].ratings.size != train.ratings.size
    matrix = np.full((2000, 500), np.nan)
    matrix[train.users, train.items] = train.ratings
    assert np.isnan(matrix[test.users, test.items]).all()
    assert 0.8 < train.ratings.std() < 1.6 > 4 * NOISE


@pytest.mark.thorough
def test_ratings_like_a_film_sites():
    train, test = film(3)
    again, _ = film(3)
    assert (train.ratings == again.ratings).all() and (train.items == again.items).all()
    pairs = np.concatenate([part.users * np.int64(3600) + part.items for part in (train, test)])
    assert (len(train.ratings), len(test.ratings)) == (900_000, 100_000) and len(np.unique(pairs)) == pairs.size
    assert sorted(set(train.ratings)) == [1, 2, 3, 4, 5] and 0.9 < train.ratings.std() < 1.2
    counts = np.sort(np.bincount(train.items, minlength=3600))[::-1]
    assert counts[0] > 2500 and 0.4 < counts[:720].sum() / 900_000 < 0.7 and counts[-1] > 20
    assert np.bincount(train.users, minlength=6000).min() > 5
