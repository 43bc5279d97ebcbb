"""Meetings that name who is missing."""

from __future__ import annotations

import pytest

from dstorm import DeadlinePassed, Group, MismatchedCalls, SimulatedTransport, roster

pytestmark = pytest.mark.serial


def run(size, seed, live, deadline_s=1.0):
    group = Group(size, seed)

    def start(rank):
        transport = SimulatedTransport(group, rank)
        return live(rank, roster.Roster(transport, transport.window(roster.nbytes(size)), deadline_s), transport)

    return group.run(start)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_leaves_before_all_have_come(seed):
    came = [0, 0, 0, 0]

    def live(rank, mine, transport):
        for meeting in range(1, 6):
            transport.pause(rank * meeting % 7)
            came[rank] = meeting
            mine.meet("a test")
            assert min(came) >= meeting

    run(4, seed, live)


def test_the_missing_are_named():
    def live(rank, mine, transport):
        if rank != 2:
            named = r"a test: the deadline passed waiting for rank 2 \(last step 0"
            with pytest.raises(DeadlinePassed, match=named) as raised:
                mine.meet("a test")
            assert raised.value.missing == {2: 0}

    run(3, 0, live)


def test_who_makes_steps_is_waited_for():
    def live(rank, mine, transport):
        if rank == 1:
            for _ in range(300):  # 3 s, in which the others' deadline of 1 s would pass thrice
                transport.pause(30)
                mine.beat()
        mine.meet("a test")
        return transport.clock()

    assert min(run(3, 0, live)) > 2.5


def test_after_a_deadline_the_meeting_can_still_take_place():
    def live(rank, mine, transport):
        if rank == 1:
            for _ in range(200):
                transport.pause(30)
        else:
            with pytest.raises(DeadlinePassed):
                mine.meet("a test")
        mine.meet("a test")
        mine.meet("another")

    run(2, 0, live)


@pytest.mark.parametrize("seed", range(5))
def test_different_meetings_are_told_apart_at_once(seed):
    """Also while a third rank is still on its way."""

    def live(rank, mine, transport):
        mine.meet("the same")
        if rank == 2:
            for _ in range(100):
                transport.pause(30)
                mine.beat()
            return transport.clock()
        calls = ["malt.barrier", "malt.finalize"]
        named = f"rank {rank} is in {calls[rank]} while rank {1 - rank} is in {calls[1 - rank]}"
        with pytest.raises(MismatchedCalls, match=named):
            mine.meet(calls[rank])
        return transport.clock()

    first, second, third = run(3, seed, live, deadline_s=60.0)
    assert max(first, second) < third


def test_patience_ends_before_the_deadline():
    def live(rank, mine, transport):
        if rank == 0:
            with pytest.raises(DeadlinePassed):
                mine.meet("a test", patience_s=0.1)
            return transport.clock()
        for _ in range(100):
            transport.pause(30)
            mine.beat()
        return None

    assert 0.1 < run(2, 0, live)[0] < 0.5


def test_what_the_dead_said_last_is_taken_down():
    """One that is buried on another's word may have come to a meeting since this rank looked."""

    def live(rank, mine, transport):
        if rank == 1:
            mine._membership.come(0)
            mine._tell()
        transport.barrier()
        if rank == 0:
            assert mine._membership.words[1].come == 0
            mine._bury(0b10)
            assert mine._membership.words[1].come == 1
            assert mine.dead == {1}

    run(3, 0, live)
