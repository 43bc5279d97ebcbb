"""Tests of apps.mf.factors: the compiled kernels against slow twins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from apps.mf import factors
from apps.mf.planted import NOISE, film, planted

pytestmark = pytest.mark.serial
RANK = 3
ROOT = Path(__file__).parents[3]


@pytest.fixture
def generator():
    return np.random.default_rng(5)


@pytest.fixture
def small(generator):
    """The (users, items, ratings) of 6 users and 5 items. User 2 has no ratings."""
    pairs = [(u, i) for u in (0, 1, 3, 4, 5) for i in range(5) if (u * 3 + i) % 4]
    users, items = np.array(pairs, np.int32).T.copy()
    return users, items, generator.standard_normal(len(pairs)).astype(np.float32)


def rows(count, generator, rank=RANK):
    return generator.standard_normal((count, rank + 1)).astype(np.float32)


def twin(data, order, users, items, l2, step, biases):
    """The rows after one epoch in float64, straight from the formula."""
    users, items = users.astype(float), items.astype(float)
    for u in order:
        for n in range(data.starts[u], data.starts[u + 1]):
            i = data.items[n]
            p, q = users[u, :-1].copy(), items[i, :-1].copy()
            e = data.ratings[n] - (p @ q + users[u, -1] + items[i, -1])
            keep_u, keep_i = 1 / (1 + step * l2[0][u]), 1 / (1 + step * l2[1][i])
            users[u, :-1], items[i, :-1] = keep_u * p + step * e * q, keep_i * q + step * e * p
            users[u, -1] = keep_u * users[u, -1] + biases * step * e
            items[i, -1] = keep_i * items[i, -1] + biases * step * e
    return users, items


@pytest.mark.parametrize("rank", [1, 16, 17, 35])
def test_the_pieces_of_a_row_cover_it(rank):
    pieces = factors._pieces(rank)
    assert [place for start, width in pieces for place in range(start, start + width)] == list(range(rank))
    assert max(width for _, width in pieces) <= 16


@pytest.mark.parametrize("rank", [1, RANK, 19])
@pytest.mark.parametrize("biases", [True, False])
def test_train_equals_its_slow_twin(small, generator, rank, biases):
    data = factors.shard(*small, 6, generator)
    users, items = rows(6, generator, rank), rows(7, generator, rank)
    l2 = factors.penalties(np.bincount(small[0], minlength=6), 0.3), factors.penalties(np.full(7, 4), 0.3)
    order = np.array([4, 2, 0, 5], np.int32)
    expected = twin(data, order, users, items, l2, 0.1, biases)
    touched = np.zeros(7, bool)
    kept = tuple(factors.keeps(part, 0.1) for part in l2)
    factors.train(factors.kernels(rank), data, order, users, items, kept, 0.1, touched, biases)
    np.testing.assert_allclose(users, expected[0], rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(items, expected[1], rtol=2e-5, atol=1e-6)
    seen = {int(i) for u, i in zip(*small[:2], strict=True) if u in order}
    assert set(np.flatnonzero(touched)) == seen and seen < set(range(7))


def test_squares_and_predict_equal_their_slow_twins(generator):
    users, items = rows(4, generator), rows(5, generator)
    whose = np.array([0, 3, -1, 2, -1, 1], np.int32)
    which = np.array([4, -1, 2, 2, -1, 0], np.int32)
    ratings = generator.standard_normal(6).astype(np.float32)
    predicted = []
    for u, i in zip(whose, which, strict=True):
        p = users[u].astype(float) if u >= 0 else np.zeros(RANK + 1)
        q = items[i].astype(float) if i >= 0 else np.zeros(RANK + 1)
        predicted.append(p[:-1] @ q[:-1] + p[-1] + q[-1])
    made = factors.kernels(RANK)
    np.testing.assert_allclose(factors.predict(made, users, items, whose, which), predicted, rtol=1e-5, atol=1e-6)
    low, high = sorted(predicted)[1], sorted(predicted)[-2]  # so that both bounds matter
    expected = np.square(ratings - np.clip(predicted, low, high)).sum()
    assert factors.squares(made, users, items, whose, which, ratings, low, high) == pytest.approx(expected, rel=1e-5)


def test_shard_has_each_rating_once_with_its_user(small, generator):
    users, items, ratings = small
    mixed = generator.permutation(len(users))
    data = factors.shard(users[mixed], items[mixed], ratings[mixed], 6, generator)
    found = [
        (u, int(data.items[n]), float(data.ratings[n]))
        for u in range(6) for n in range(data.starts[u], data.starts[u + 1])
    ]  # fmt: skip
    assert sorted(found) == sorted(zip(users.tolist(), items.tolist(), ratings.tolist(), strict=True))
    assert data.starts[2] == data.starts[3]


def test_shard_shuffles_the_ratings_of_a_user(generator):
    count = 50
    data = factors.shard(np.zeros(count, np.int32), np.arange(count, dtype=np.int32), np.zeros(count), 1, generator)
    assert sorted(data.items.tolist()) == list(range(count)) != data.items.tolist()


@pytest.mark.parametrize("users", [[0, 3], [-1, 0], [0]])
def test_shard_refuses_what_the_kernels_cannot_take(generator, users):
    with pytest.raises(ValueError, match="user"):
        factors.shard(np.array(users, np.int32), np.zeros(2, np.int32), np.zeros(2, np.float32), 3, generator)


def test_an_empty_shard(generator):
    nothing = np.empty(0, np.int32)
    data = factors.shard(nothing, nothing, nothing.astype(np.float32), 0, generator)
    users, items, touched = rows(0, generator), rows(2, generator), np.zeros(2, bool)
    before = items.copy()
    kept = np.empty(0, np.float32), np.ones(2, np.float32)
    factors.train(factors.kernels(RANK), data, nothing, users, items, kept, 0.1, touched)
    assert (items == before).all() and not touched.any()


def test_compiled_factor_kernels_are_cached(job_environment):
    """A second process finds all kernels in numba's cache."""
    factors.kernels(RANK)
    program = f"from apps.mf.factors import kernels; print([len(one.stats.cache_misses) for one in kernels({RANK})])"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=job_environment, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "[0, 0, 0]\n", done.stderr


def test_divergence_names_the_step(small, generator):
    data = factors.shard(*small, 6, generator)
    kept = np.ones(6, np.float32), np.ones(5, np.float32)
    order = np.tile(np.arange(6, dtype=np.int32), 20)
    with pytest.raises(FloatingPointError, match=r"step size, 1e\+20, is too large"):
        factors.train(
            factors.kernels(RANK), data, order, rows(6, generator), rows(5, generator), kept, 1e20, np.zeros(5, bool)
        )


def test_first_rows_are_small_and_without_bias(generator):
    first = factors.first_rows(2000, 5, generator)
    assert (first[:, -1] == 0).all() and first.dtype == np.float32
    assert first[:, :-1].std() == pytest.approx(factors.START_SPREAD, rel=0.05)


def test_penalties_are_larger_for_rare_rows():
    assert factors.penalties(np.array([0, 1, 30, 10**6]), 0.5).tolist() == pytest.approx([15.5, 15.5, 1, 0.5], rel=1e-4)


def test_the_step_size_falls_linearly():
    assert [factors.step_size(0.4, epoch, 4) for epoch in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])


def test_planted_ratings_are_low_rank_and_noise():
    train, test = planted(3)
    again, _ = planted(3)
    assert (train.ratings == again.ratings).all() and planted(4)[0].ratings.size != train.ratings.size
    matrix = np.full((2000, 500), np.nan)
    matrix[train.users, train.items] = train.ratings
    assert np.isnan(matrix[test.users, test.items]).all()
    assert 0.8 < train.ratings.std() < 1.6 > 4 * NOISE


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
