"""How many exchanges malt.barrier takes: each is a round trip between hosts."""

import numpy as np

import malt
from dstorm import SimulatedTransport
from malt.session.world.shard_notes import MOST


def test_a_barrier_is_one_exchange(monkeypatch):
    """In the first ones ranks compare notes; later ones are plain, which takes less time."""
    gathers, allgather = [], SimulatedTransport.allgather

    def gathered(transport, data):
        gathers.append(transport.rank)
        return allgather(transport, data)

    monkeypatch.setattr(SimulatedTransport, "allgather", gathered)

    def live(rank):
        transport, found = malt.init().transport, []
        for _ in range(MOST + 2):
            before = transport.meetings
            malt.barrier()
            found.append(transport.meetings - before)
        compared = gathers.count(rank)
        with malt.sharded(3):
            before = transport.meetings
            malt.barrier()
            return compared, [*found, transport.meetings - before]

    assert malt.simulate(live, 2) == [(MOST, [1] * (MOST + 3))] * 2


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
