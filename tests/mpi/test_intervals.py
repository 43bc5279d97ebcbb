"""malt.Replica exchanges as often as its exchanges are worth their cost."""

from __future__ import annotations

import time

import numpy as np
import pytest

import malt
from malt.session.replica.interval import TIMES
from malt.session.replica.pacing import TRIED


def busy(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def train(replica, steps: int) -> list[int]:
    """The steps at which the replica has exchanged."""
    return [step for step in range(1, steps + 1) if replica.step()]


@pytest.mark.parametrize("sync", ["asp", "ssp:1000"])
@pytest.mark.parametrize("average", ["model", "delta"])
def test_short_steps_are_left_alone_by_default(sync, average):
    w = np.zeros(1000)
    with malt.Replica([w], sync=sync, average=average) as replica:
        replica.trust()
        exchanged = train(replica, 20_000)
        malt.barrier()  # a rank that is through and has closed is not sent to
        assert exchanged[:2] == [1, 3] or exchanged[:2] == [1, 2], "the interval grows at once"
        assert len(exchanged) < 20_000 / TIMES, "a step takes far less than an exchange"
        assert replica.statistics().every > TIMES
        assert replica.statistics().sent > 0 or malt.size() == 1


def test_bounds_hold():
    with malt.Replica([np.zeros(1000)], every=(4, 16)) as replica:
        replica.trust()
        exchanged = train(replica, 2000)
        gaps = np.diff(exchanged)
        assert exchanged[0] == 4 and gaps.min() >= 4 and gaps.max() <= 16 and replica.statistics().every <= 16
    with malt.Replica([np.zeros(1000)], epoch=80) as replica:
        replica.trust()
        assert np.diff(train(replica, 2000)).max() <= 80 // 8


def test_all_ranks_agree_on_one_interval_in_lockstep(capfd):
    w = np.zeros(1000)
    with malt.Replica([w], every="auto", sync="bsp", graph="all") as replica:
        replica.trust()
        exchanged = []
        for step in range(1, 401):
            w += malt.rank()
            if malt.rank() == malt.size() - 1 and step <= TRIED:
                busy(2e-3)  # its steps are long, so it would exchange more often
            if replica.step():
                exchanged.append(step)
        every = replica.statistics().every
    first = list(range(1, TRIED + 2))
    rest = [step for step in range(TRIED + 2, 401) if step % every == 0]
    assert exchanged == first + rest and (every > 1 or malt.size() == 1)
    assert len(set(malt.init().transport.allgather(repr(exchanged).encode()))) == 1
    assert len(set(malt.init().transport.allgather(w.tobytes()))) == 1
    line = f"every={every} from here on, by what {TRIED} exchanges have cost: give that to repeat this run"
    assert (line in capfd.readouterr().err) == malt.lowest()


def test_a_rank_that_ends_before_ranks_agree_takes_part():
    steps = 3 if malt.rank() == malt.size() - 1 else 50
    w = np.zeros(10)
    with malt.Replica([w], every="auto", sync="bsp", graph="all") as replica:
        for _ in range(steps):
            w += 1
            replica.step()
    with malt.Replica([w], every="auto", sync="bsp", graph="all") as replica:
        replica.step()
    assert len(set(malt.init().transport.allgather(w.tobytes()))) == 1


@pytest.mark.parametrize("agreed_at", [0, 3, TRIED, TRIED + 1, 40])
def test_ranks_that_agree_on_a_model_agree_on_the_interval(agreed_at, capfd):
    """A rank that has ended takes part, without a wish of its own."""
    w, ends = np.zeros(10), 2 if malt.size() > 1 and malt.rank() == malt.size() - 1 else 50
    with malt.Replica([w], every="auto", sync="bsp", graph="all") as replica:
        for step in range(ends):
            if step == agreed_at:
                replica.agree()
            w += 1
            replica.step()
    assert len(set(malt.init().transport.allgather(w.tobytes()))) == 1
    assert capfd.readouterr().err.count("from here on") == malt.lowest()


def test_under_notify_ack_each_rank_has_its_own_interval():
    w, steps = np.zeros(1000), 300 * (1 + malt.rank())
    with malt.Replica([w], every="auto", sync="notify-ack", graph="all") as replica:
        replica.trust()
        exchanged = train(replica, steps)
    assert 1 <= len(exchanged) < steps and len(set(malt.init().transport.allgather(w.tobytes()))) == 1


@pytest.mark.parametrize("every", [7, "auto", (3, 50)])
def test_a_loop_of_vectors_exchanges_as_often_as_a_replica(every):
    v, rows, due_at, seen, gaps = malt.vector(1000), np.arange(500), [], 0, []
    exchanges = malt.Exchanges(every, epoch=8 * 40, first=20, vectors=[v])
    for _ in range(10):
        parts = []
        for part, due in exchanges.parts(rows):
            parts.append(part)
            seen += len(part)
            if due:
                gaps.append(seen - (due_at[-1] if due_at else 0))
                due_at.append(seen)
                with exchanges.exchange():
                    v.scatter()
                    v.gather(malt.AVG)
        assert np.array_equal(np.concatenate(parts), rows)
    if every == 7:
        assert due_at == list(range(7, 5001, 7))
    else:
        assert gaps[0] == 20 and exchanges.most == 40 and max(gaps) == exchanges.every == 40  # the rows take no time
    v.close()


@pytest.mark.parallel
def test_in_lockstep_all_ask_for_it_or_none():
    with pytest.raises(ValueError, match="malt.Replica: ranks disagree on every: rank 0 has None, rank 1 has auto"):
        malt.Replica(np.zeros(3), every="auto" if malt.rank() else 5, sync="bsp")


def test_without_being_asked_lockstep_exchanges_at_each_step():
    w = np.zeros(3)
    with malt.Replica(w, sync="bsp") as replica:
        for _ in range(20):
            w += 1
            assert replica.step()
        assert replica.statistics().every == 1


def test_each_fragment_has_its_turn_within_an_interval():
    with pytest.raises(ValueError, match="fragments must be at most every, 3, got 4"):
        malt.Replica([np.zeros(3)] * 4, every=3, fragments=4)
