"""malt.shard: each row is in one shard."""

import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from drawn import given, st
from scipy import sparse

import malt
from malt.data import shards
from malt.data.shards import bounds
from malt.session.world.crew import dealt
from malt.session.world.shard_notes import ShardNotes
from malt.session.world.training_speed import TrainingSpeed


@pytest.mark.serial
@given(st.integers(0, 10_000), st.integers(1, 64))
def test_shards_partition_the_rows_evenly(count, size):
    parts = [bounds(count, rank, size) for rank in range(size)]
    assert parts[0][0] == 0 and parts[-1][1] == count
    assert all(end == start for (_, end), (start, _) in pairwise(parts))
    lengths = [end - start for start, end in parts]
    assert max(lengths) - min(lengths) <= 1


def test_numbers_give_slices_and_arrays_their_rows():
    part = malt.shard(103)
    rows = np.arange(206).reshape(103, 2)
    mine = malt.shard(rows)
    assert np.shares_memory(mine, rows) and (mine == rows[part]).all()
    assert malt.shard(list(range(103))) == list(range(103))[part]
    assert malt.shard(np.int64(103)) == part
    everyone = malt.init().transport.allgather(mine.tobytes())
    assert b"".join(everyone) == rows.tobytes()


def test_more_ranks_than_rows():
    counts = [len(malt.shard([7])) for _ in range(1)]
    assert sum(int(x) for x in malt.init().transport.allgather(str(counts[0]).encode())) == 1


@pytest.mark.parametrize("seed", [0, 7])
def test_each_shuffled_row_is_dealt_once_in_one_order_for_a_seed(seed):
    mine = malt.shard(103, shuffle=True, seed=seed)
    everyone = b"".join(malt.init().transport.allgather(mine.astype(np.int64).tobytes()))
    order = np.frombuffer(everyone, np.int64)
    assert sorted(order) == list(range(103)) and (order != np.arange(103)).sum() > 80
    for rows in (np.arange(103), range(103), list(range(103))):
        assert list(malt.shard(rows, shuffle=True, seed=seed)) == mine.tolist()
    assert malt.shard(103, shuffle=True, seed=seed + 1).tolist() != mine.tolist()


class Frame:
    """A data frame as in pandas: iloc[] returns rows by position, [] returns columns by name."""

    def __init__(self, values):
        self.iloc = self._values = values

    def __len__(self):
        return len(self._values)

    def __getitem__(self, key):
        raise KeyError(key)


@pytest.mark.serial
def test_rows_of_any_kind_are_dealt_again_after_a_failure(monkeypatch):
    polls = []
    transport = SimpleNamespace(poll_failures=lambda: polls.append(1))
    transport.size = 3
    world = SimpleNamespace(rank=2, transport=transport, notes=ShardNotes(), dealt=dealt(range(3), {1}))
    monkeypatch.setattr(shards.session, "world", lambda: world)
    mine = shards.living_rows(9, 2, range(3), {1}).tolist()
    assert mine == [4, 5, 6, 7, 8]
    values = 10 * np.arange(9)
    assert malt.shard(9).tolist() == mine and len(polls) == 1
    for rows in (range(0, 90, 10), values, Frame(values), sparse.csr_matrix(np.diag(values))):
        part = malt.shard(rows)
        part = part.diagonal(4) if sparse.issparse(part) else part
        assert isinstance(part, np.ndarray) and part.tolist() == [40, 50, 60, 70, 80]
    assert malt.shard(list("abcdefghi")) == malt.shard(tuple("abcdefghi")) == list("efghi")
    order = np.random.default_rng(5).permutation(9)
    assert malt.shard(9, shuffle=True, seed=5).tolist() == order[mine].tolist()


class Stream:
    def __len__(self):
        return 10


BAD = [
    (-1, ValueError), (True, ValueError), (1.5, TypeError), (None, TypeError), ({0: 1}, TypeError), ({1, 2}, TypeError),
    ("rows.csv", TypeError), (iter([1]), TypeError), (Stream(), TypeError), (np.array(1.5), TypeError),
    (sparse.eye(3, format="coo"), TypeError),
]  # fmt: skip


@pytest.mark.parametrize(("bad", "error"), BAD, ids=lambda value: type(value).__name__)
def test_bad_rows(bad, error):
    with pytest.raises(error, match="malt.shard takes a number of rows"):
        malt.shard(bad)


@pytest.mark.parametrize(
    ("bad", "error"),
    [({"seed": -1}, ValueError), ({"seed": 1.5}, TypeError), ({"seed": True}, TypeError), ({"shuffle": 1}, TypeError),
     ({"by_speed": "no"}, TypeError)],
)  # fmt: skip
def test_bad_options(bad, error):
    with pytest.raises(error, match=f"malt.shard: {next(iter(bad))} must be"):
        malt.shard(3, **bad)


@pytest.mark.serial
@pytest.mark.parametrize("seed", range(30))
def test_rows_of_failed_ranks_are_dealt_to_the_live_ones(seed):
    choose = random.Random(seed)
    size, count = choose.randrange(2, 9), choose.randrange(0, 200)
    failed = set(choose.sample(range(size), choose.randrange(1, size)))
    parts = {rank: shards.living_rows(count, rank, range(size), failed) for rank in range(size) if rank not in failed}
    everything = np.concatenate(list(parts.values()))
    assert sorted(everything) == list(range(count))  # each row belongs to exactly one rank
    for rank, rows in parts.items():
        first, last = shards.bounds(count, rank, size)
        assert set(range(first, last)) <= set(rows.tolist())
        assert (np.diff(rows) > 0).all()
    assert max(map(len, parts.values())) - min(map(len, parts.values())) <= 1 + len(failed)


def test_shards_by_speed_partition_the_rows_in_proportion(monkeypatch):
    """The first call deals equally. Rank 0 is then three times as fast as the others."""
    world = malt.init()
    equal = malt.shard(1000)
    assert malt.shard(1000, by_speed=True).tolist() == list(range(*equal.indices(1000)))
    monkeypatch.setattr(world.training_speed, "speed", lambda now: 30.0 if world.rank == 0 else 10.0)
    mine = malt.shard(1000, by_speed=True)
    everyone = [np.frombuffer(one, np.intp) for one in world.transport.allgather(mine.astype(np.intp).tobytes())]
    assert np.concatenate(everyone).tolist() == list(range(1000))
    assert len(everyone[0]) == 1000 * 3 // (2 + world.size)
    rows = np.arange(1000) * 2
    assert malt.shard(rows, by_speed=True).tolist() == (2 * mine).tolist()
    order = b"".join(world.transport.allgather(malt.shard(99, by_speed=True, shuffle=True).tobytes()))
    assert sorted(np.frombuffer(order, np.int64)) == list(range(99))


def test_shards_by_speed_are_refused_on_all_ranks_alike():
    bad = -5 if malt.rank() == malt.size() - 1 else 10
    with pytest.raises(ValueError, match="of at least 0, got -5"):
        malt.shard(bad, by_speed=True)


def test_the_pace_of_a_rank_is_its_last():
    speed = TrainingSpeed()
    assert speed.speed(5.0) == 0
    speed.begin(5.0, 100)
    assert speed.speed(7.0) == 50
    speed.begin(7.0, 0)
    assert speed.speed(8.0) == 50
