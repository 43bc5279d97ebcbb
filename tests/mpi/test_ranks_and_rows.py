"""The calls that return facts about ranks: hosts, failures, free memory, rows, owners of users."""

import numpy as np
import pytest

import malt
from malt.data import owners, rows_of


def test_hosts():
    hosts = malt.hosts()
    assert len(hosts) == malt.size() and all(hosts)
    assert malt.allgather(hosts) == [list(hosts)] * malt.size()


def test_no_rank_has_failed():
    assert malt.lost_ranks() == [] and not malt.init().survive


def test_free_memory():
    free = malt.free_memory()
    assert free is None or free > 1 << 20


def test_rows_of_this_rank_are_those_of_shard():
    rows = np.arange(100)
    assert (rows_of(100, malt.rank()) == malt.shard(rows)).all()


@pytest.mark.serial
@pytest.mark.parametrize("failed", [(), (1,), (0, 2)])
def test_every_row_belongs_to_one_rank(failed):
    def live(rank):
        parts = [rows_of(11, other, failed) for other in range(4) if other not in failed]
        assert sorted(np.concatenate(parts)) == list(range(11))
        return parts[0].tolist()

    assert len(set(map(tuple, malt.simulate(live, 4)))) == 1


@pytest.mark.serial
def test_a_rank_that_has_failed_has_no_rows():
    """Those that it had are others' by then."""
    with pytest.raises(ValueError, match="malt.data.rows_of: rank 1 is one of those that have failed"):
        malt.simulate(lambda rank: rows_of(11, 1, [1]), 2)


@pytest.mark.serial
def test_owners_are_those_by_which_ratings_are_loaded(tmp_path):
    file = tmp_path / "ratings.txt"
    file.write_text("".join(f"{user} {item} 1\n" for user in range(30) for item in range(1 + user % 4)))

    def live(rank):
        whole, mine = malt.open_ratings(file), malt.load_ratings(file)
        dealt = owners(whole)
        assert set(mine.users.tolist()) == set(np.flatnonzero(dealt == rank).tolist())
        after = owners(whole, failed=[1])
        assert 1 not in after and (after == dealt)[dealt != 1].all()

    malt.simulate(live, 3)
