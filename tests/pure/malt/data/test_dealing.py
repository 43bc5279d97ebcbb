"""malt.data.deal and rows_of: items and rows by rank, and arguments that name none."""

import numpy as np
import pytest

import malt
from malt.data import deal, rows_of


def test_totals_are_about_equal():
    counts = np.random.default_rng(0).integers(1, 50, 5000)
    totals = np.bincount(deal(counts, 7), counts, 7)
    assert totals.max() - totals.min() <= 50
    assert deal(counts.tolist(), 7).tolist() == deal(counts, 7).tolist() and deal([], 2).tolist() == []


@pytest.mark.parametrize("counts, ranks", [([-1], 2), ([1.5], 2), ([[1, 2]], 2), ([1], 0), (["a"], 2)])
def test_what_are_no_sizes_is_refused(counts, ranks):
    with pytest.raises(ValueError, match=r"^malt.data.deal: (counts must be a list of|ranks must be an) integer"):
        deal(counts, ranks)


@pytest.mark.parametrize("wrong", [(10, 2), (10, -1), (-5, 0), (10, "a"), (10.0, 0)])
def test_a_rank_that_is_not_there_has_no_rows(wrong):
    """It has none, which would be an empty array: those of ranks that are counted from 1, say."""

    def live(rank):
        with pytest.raises((ValueError, TypeError), match="^malt.data.rows_of: "):
            rows_of(*wrong)
        return rows_of(5, rank).tolist(), rows_of(5, rank, [1 - rank]).tolist()

    assert malt.simulate(live, 2) == [([0, 1], [0, 1, 2, 3, 4]), ([2, 3, 4], [0, 1, 2, 3, 4])]
