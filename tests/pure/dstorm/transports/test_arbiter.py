"""Ranks of several hosts tell each other their states of the agreement on who goes on."""

from __future__ import annotations

import pytest

from dstorm.transports.links.arbiter import Arbiter


def go_round(arbiters, fails=()):
    """Each rank decides, and tells all others of that, as links do. `fails`: pairs whose connection takes nothing."""
    for rank, one in enumerate(arbiters):
        assert one.decide() == ""
        for peer, other in enumerate(arbiters):

            def send(data, way=(rank, peer), other=other):
                if data and way not in fails:
                    other.note(way[0], data)
                return way not in fails

            if peer != rank:
                one.tell(peer, send)


@pytest.mark.parametrize("fails", [(), [(1, 3)], [(1, 2), (2, 3), (3, 1)]])
def test_a_state_is_told_though_the_peer_has_come_to_the_same_meanwhile(fails):
    """Each rank must hear that all others have accepted a newcomer. Who could not be told so is told later."""
    arbiters = [Arbiter(rank, 5, absent=[4]) for rank in range(4)]
    for _ in range(3):
        go_round(arbiters)
    for turn in range(6):
        is_admitted = arbiters[0].propose(4, 1)
        go_round(arbiters, fails if turn == 0 else ())
    assert is_admitted


def test_who_knows_all_gets_no_more_than_a_heartbeat():
    arbiters = [Arbiter(rank, 2) for rank in range(2)]
    for _ in range(3):
        go_round(arbiters)
    told = []
    arbiters[0].tell(1, told.append)
    assert told == [b""]
