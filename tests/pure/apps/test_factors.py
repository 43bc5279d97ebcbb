"""Tests of malt.models.factors.problem: the ratings of a shard, first rows, penalties and steps."""

import numpy as np
import pytest
from few_ratings import few_ratings

from malt.models.factors import problem


@pytest.fixture
def generator():
    return np.random.default_rng(5)


@pytest.fixture
def small(generator):
    return few_ratings(generator)


def test_shard_has_each_rating_once_with_its_user(small, generator):
    users, items, ratings = small
    mixed = generator.permutation(len(users))
    data = problem.shard(users[mixed], items[mixed], ratings[mixed], 6, generator)
    found = [
        (u, int(data.items[n]), float(data.ratings[n]))
        for u in range(6) for n in range(data.starts[u], data.starts[u + 1])
    ]  # fmt: skip
    assert sorted(found) == sorted(zip(users.tolist(), items.tolist(), ratings.tolist(), strict=True))
    assert data.starts[2] == data.starts[3]


def test_shard_shuffles_the_ratings_of_a_user(generator):
    count = 50
    data = problem.shard(np.zeros(count, np.int32), np.arange(count, dtype=np.int32), np.zeros(count), 1, generator)
    assert sorted(data.items.tolist()) == list(range(count)) != data.items.tolist()


@pytest.mark.parametrize("users", [[0, 3], [-1, 0], [0]])
def test_shard_refuses_what_the_kernels_cannot_take(generator, users):
    with pytest.raises(ValueError, match="user"):
        problem.shard(np.array(users, np.int32), np.zeros(2, np.int32), np.zeros(2, np.float32), 3, generator)


def test_first_rows_are_small_and_without_bias(generator):
    first = problem.first_rows(2000, 5, generator)
    assert (first[:, -1] == 0).all() and first.dtype == np.float32
    assert first[:, :-1].std() == pytest.approx(problem.START_SPREAD, rel=0.05)


def test_penalties_are_larger_for_rare_rows():
    assert problem.penalties(np.array([0, 1, 30, 10**6]), 0.5).tolist() == pytest.approx([15.5, 15.5, 1, 0.5], rel=1e-4)


def test_the_step_size_falls_linearly():
    assert [problem.step_size(0.4, epoch, 4) for epoch in range(4)] == pytest.approx([0.4, 0.3, 0.2, 0.1])
