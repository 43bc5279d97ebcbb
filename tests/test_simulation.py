"""Simulated ranks: the same seed, the same everything; other seeds, other interleavings."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import malt
from dstorm import Group, SimulatedTransport

pytestmark = pytest.mark.serial


def train(rank):
    """A bit of asynchronous work; everything that an interleaving can change."""
    v = malt.vector(np.full(20, float(rank)), graph="exponential")
    seen = []
    for _ in range(10):
        v.array += rank
        v.scatter()
        merged = v.gather()
        seen.append((merged.senders, merged.steps))
    v.close()
    return v.array.tobytes(), v.statistics(), seen


def test_a_seed_decides_everything():
    first, again, other = (malt.simulate(train, 6, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_sixty_four_ranks_end_with_one_model():
    def live(rank):
        w = np.zeros(30, np.float32)
        with malt.Replica(w, every=5, graph="auto", sync="bsp") as replica:
            rng = np.random.default_rng(rank)
            for _ in range(20):
                w += rng.standard_normal(30, dtype=np.float32)
                replica.step()
        return w.tobytes(), replica.vectors[0].statistics().bytes_sent

    first, again = malt.simulate(live, 64, seed=3), malt.simulate(live, 64, seed=3)
    assert first == again and len({model for model, _ in first}) == 1
    assert {sent for _, sent in first} == {4 * 6 * 30 * 4}  # exchanges x log2(64) peers x bytes


def test_a_rank_sees_its_world():
    assert malt.simulate(lambda rank: (malt.rank() == rank, malt.size(), malt.shard(10)), 2) == [
        (True, 2, slice(0, 5)),
        (True, 2, slice(5, 10)),
    ]
    assert malt.size() == 1


def test_time_is_virtual():
    waited = malt.simulate(_wait_alone, 2)
    assert waited[0] == pytest.approx(50, rel=0.01)


def _wait_alone(rank):
    """Rank 0 waits for a step that rank 1 never makes."""
    v = malt.vector(3, sync="bsp")
    if rank == 1:
        while malt.init().transport.clock() < 51:
            malt.init().transport.pause(30)
        return 0.0
    v.scatter()
    with pytest.raises(malt.DeadlinePassed, match="rank 1"):
        v.gather(timeout_s=50.0)
    return v.statistics().waited_s


def test_an_exception_stops_the_others_and_names_the_rank():
    went_on = []

    def live(rank):
        if rank == 2:
            raise KeyError("mine")
        malt.barrier()
        went_on.append(rank)

    with pytest.raises(KeyError, match="mine") as raised:
        malt.simulate(live, 4)
    assert not went_on
    assert "simulated rank 2 of 4 failed" in "".join(traceback.format_exception(raised.value))


def test_a_collective_that_some_never_make():
    with pytest.raises(RuntimeError, match=r"rank 1 is in malt.barrier while rank 0 is in malt.finalize"):
        malt.simulate(lambda rank: malt.barrier() if rank else None, 3)


def test_not_inside_itself():
    with pytest.raises(RuntimeError, match="cannot be called inside a simulated rank"):
        malt.simulate(lambda rank: malt.simulate(lambda inner: inner, 2), 2)


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "4"])
def test_bad_numbers_of_ranks(bad):
    with pytest.raises(ValueError, match="ranks must be a whole number from 1 up"):
        malt.simulate(lambda rank: rank, bad)


def test_a_put_arrives_in_pieces_and_not_before_its_flush_at_the_latest():
    """What a receiver can see between a Put and its flush: old and new bytes, mixed."""

    def live(seed):
        group = Group(2, seed)
        mixed = []

        def on_rank(rank):
            transport = SimulatedTransport(group, rank)
            window = transport.window(16)
            if rank == 0:
                source = np.full(16, 7, np.uint8)
                window.put(source, 1, 0)
                window.flush([1])
                transport.barrier()
            else:
                for _ in range(6):
                    transport.pause(0)
                    mixed.append(0 < int((window.memory == 7).sum()) < 16)
                transport.barrier()
                assert (window.memory == 7).all()

        group.run(on_rank)
        return any(mixed)

    assert any(live(seed) for seed in range(60))
