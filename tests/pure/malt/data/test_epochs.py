"""The rows of an epoch: dealt to ranks, and dealt anew while ranks fail and come back."""

from itertools import chain

import numpy as np
import pytest

from malt.data.epochs import Epoch, left_of


def drawn(epoch, count=None):
    found = []
    while (count is None or len(found) < count) and (row := epoch.draw()) is not None:
        found.append(row)
    return found


@pytest.mark.parametrize("size", [1, 2, 3, 7, 30])
def test_each_row_is_dealt_once_and_nobody_is_padded(size):
    rows = np.random.default_rng(0).permutation(20)
    parts = [drawn(Epoch(rows, rank, size)) for rank in range(size)]
    assert sorted(chain(*parts)) == list(range(20)) and max(map(len, parts)) - min(map(len, parts)) <= 1
    assert parts[0] == rows[::size].tolist() and Epoch(rows, 0, size).lengths == (len(parts[-1]), len(parts[0]))
    assert [len(Epoch(rows, rank, size)) for rank in range(size)] == list(map(len, parts))


def test_it_begins_within():
    epoch = Epoch(np.arange(100, 110), 1, 2)
    epoch.begin_at(2)
    assert drawn(epoch) == [105, 107, 109] and epoch.first(2).tolist() == [101, 103] and len(epoch) == 5


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_failed_ranks_are_trained_by_others_whenever_these_learn_of_it(seed):
    draw, size, rows = np.random.default_rng(seed), 5, np.arange(200)
    failures = draw.choice(size - 1, draw.integers(1, 4), replace=False)
    trained, lengths, known = [], [], set()
    for rank in sorted(set(range(size)) - set(failures.tolist())):
        epoch, mine = Epoch(rows, rank, size), []
        for count in range(1, 1 + len(failures)):
            mine += drawn(epoch, int(draw.integers(10)))
            epoch.deal_anew(set(failures[:count].tolist()))
        mine += drawn(epoch)
        assert len(set(mine)) == len(mine) == len(epoch) and epoch.is_redealt
        trained += mine
        lengths.append(len(mine))
        known.add(epoch.lengths)
    assert sorted(trained) == rows.tolist() and known == {(min(lengths), max(lengths))}


def test_a_rank_that_comes_back_has_its_rows_again():
    own, other = Epoch(np.arange(40), 0, 2), Epoch(np.arange(40), 1, 2)
    own.deal_anew({1})
    early = drawn(own, 10)
    own.deal_anew(set())
    mine = early + drawn(own)
    assert set(mine) >= set(range(0, 40, 2)) and set(mine) | set(drawn(other)) == set(range(40))
    assert set(mine) - set(range(0, 40, 2)) == set(early) - set(range(0, 40, 2)) != set()


def test_what_is_left():
    rows = np.arange(10, 20)
    assert left_of(rows, [1, None, 2]).tolist() == [13, 16, 18, 19]
    assert left_of(rows, [None]).tolist() == [] and left_of(rows, [0, 0]).tolist() == rows.tolist()
    assert left_of(left_of(rows, [2, 2]), [1, 1, 1]).tolist() == [17, 18, 19]
