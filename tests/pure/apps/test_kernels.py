"""The compiled kernels of malt.models.factors against slow twins."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from few_ratings import few_ratings

from malt.models.factors import compiled as kernels
from malt.models.factors import problem

pytestmark = pytest.mark.serial
RANK = 3
ROOT = Path(__file__).parents[3]


@pytest.fixture
def generator():
    return np.random.default_rng(5)


@pytest.fixture
def small(generator):
    return few_ratings(generator)


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
    pieces = kernels._pieces(rank)
    assert [place for start, width in pieces for place in range(start, start + width)] == list(range(rank))
    assert max(width for _, width in pieces) <= 16


@pytest.mark.parametrize("rank", [1, RANK, 19])
@pytest.mark.parametrize("biases", [True, False])
def test_train_equals_its_slow_twin(small, generator, rank, biases):
    data = problem.shard(*small, 6, generator)
    users, items = rows(6, generator, rank), rows(7, generator, rank)
    l2 = problem.penalties(np.bincount(small[0], minlength=6), 0.3), problem.penalties(np.full(7, 4), 0.3)
    order = np.array([4, 2, 0, 5], np.int32)
    expected = twin(data, order, users, items, l2, 0.1, biases)
    touched = np.zeros(7, bool)
    kept = tuple(problem.keeps(part, 0.1) for part in l2)
    kernels.train(kernels.train_kernel(rank), data, order, users, items, kept, 0.1, touched, biases)
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
    np.testing.assert_allclose(kernels.predict(users, items, whose, which), predicted, rtol=1e-5, atol=1e-6)
    low, high = sorted(predicted)[1], sorted(predicted)[-2]  # so that both bounds matter
    expected = np.square(ratings - np.clip(predicted, low, high)).sum()
    assert kernels.squares(users, items, whose, which, ratings, low, high) == pytest.approx(expected, rel=1e-5)


def test_an_empty_shard(generator):
    nothing = np.empty(0, np.int32)
    data = problem.shard(nothing, nothing, nothing.astype(np.float32), 0, generator)
    users, items, touched = rows(0, generator), rows(2, generator), np.zeros(2, bool)
    before = items.copy()
    kept = np.empty(0, np.float32), np.ones(2, np.float32)
    kernels.train(kernels.train_kernel(RANK), data, nothing, users, items, kept, 0.1, touched)
    assert (items == before).all() and not touched.any()


def test_compiled_factor_kernels_are_cached(job_environment):
    """A second process finds all kernels in numba's cache."""
    kernels.train_kernel(RANK)
    program = (
        "from malt.models.factors import compiled;"
        f"made = compiled.train_kernel({RANK}), compiled._squares, compiled._predict;"
        "print([len(one.stats.cache_misses) for one in made])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=job_environment, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == "[0, 0, 0]\n", done.stderr


def test_divergence_names_the_step(small, generator):
    data = problem.shard(*small, 6, generator)
    kept = np.ones(6, np.float32), np.ones(5, np.float32)
    order = np.tile(np.arange(6, dtype=np.int32), 20)
    with pytest.raises(FloatingPointError, match=r"step size, 1e\+20, is too large"):
        made, touched = kernels.train_kernel(RANK), np.zeros(5, bool)
        kernels.train(made, data, order, rows(6, generator), rows(5, generator), kept, 1e20, touched)
