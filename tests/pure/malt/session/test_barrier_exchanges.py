"""How many exchanges malt.barrier takes: each is a round trip between hosts."""

from __future__ import annotations

import numpy as np
import pytest

import malt
from dstorm import SimulatedTransport
from malt.session.world.shard_notes import MOST

pytestmark = pytest.mark.serial


def test_a_barrier_is_one_exchange(monkeypatch):
    calls = []

    def counted(name):
        plain = getattr(SimulatedTransport, name)

        def count(self, *args, **kwargs):
            if self.rank == 0:
                calls.append(name)
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(SimulatedTransport, name, count)

    def live(rank):
        malt.barrier()
        if rank == 0:
            counted("barrier")
            counted("allgather")
        malt.barrier()
        first = tuple(calls)
        for _ in range(MOST):
            malt.barrier()
        last = tuple(calls[-2:])
        calls.clear()
        sharded = malt.sharded(3)
        calls.clear()
        malt.barrier()
        sharded.close()
        return first, last, calls[:1]

    first, last, sharded = malt.simulate(live, 2)[0]
    assert first == ("allgather",) and last == ("barrier", "barrier") and sharded == ["barrier"]


def test_a_barrier_is_two_where_a_rank_has_pushed_since_the_ranks_met_last():
    """To a sharded vector. The owners add that between the two."""

    def live(rank):
        s, transport = malt.sharded(4), malt.init().transport
        for _ in range(MOST):
            malt.barrier()

        def exchanges(pushes, meets):
            if pushes:
                s.push(np.ones(4))
            if meets:
                malt.allreduce(np.ones(1))
            before = transport.meetings
            malt.barrier()
            return transport.meetings - before

        return [exchanges(*one) for one in ((False, False), (rank == 1, False), (rank == 1, True), (False, False))]

    assert malt.simulate(live, 2) == [[1, 2, 1, 1]] * 2


def test_a_push_after_a_barrier_was_entered_is_counted_by_the_next_one():
    """It is entered once more, after its deadline, with the mark that it had."""

    def live(rank):
        s, transport = malt.sharded(4), malt.init().transport
        for _ in range(MOST):
            malt.barrier()
        s.push(np.ones(4))
        plain = transport.barrier
        transport.barrier = lambda what, mark: (plain(what), False)[1]
        malt.barrier()
        transport.barrier = plain
        before = transport.meetings
        malt.barrier()
        return transport.meetings - before

    assert malt.simulate(live, 2) == [2, 2]
