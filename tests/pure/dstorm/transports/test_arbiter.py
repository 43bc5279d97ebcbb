"""The part of a rank in the agreement: what it publishes to ranks of its host, and tells those of others."""

import numpy as np
import pytest

from dstorm.transports.links.arbiter import Arbiter, nbytes


class Cells:
    """A window of one rank: Puts go straight to `memories`."""

    def __init__(self, memories, rank):
        self._memories, self.memory = memories, memories[rank]

    def put(self, source, peer, offset):
        self._memories[peer][offset : offset + len(source)] = source

    def sync(self): ...


@pytest.fixture
def near():
    """Ranks 0 and 1 of three, on one host."""
    memories = [np.zeros(nbytes(3), np.uint8) for _ in range(2)]
    made = [Arbiter(rank, 3, clock=lambda: 0.0) for rank in range(2)]
    for rank, arbiter in enumerate(made):
        arbiter.window = Cells(memories, rank)
        arbiter.share(arbiter.window, [1 - rank])
    return made


def test_ranks_of_a_host_read_each_others_votes(near):
    first, second = near
    first.suspect([2])
    assert first.begin(1) == []
    first.decide()
    assert not second.is_undecided
    second.decide()
    assert second.is_undecided and second.begin(1) == []


def test_a_rank_of_the_host_confirms_without_being_asked(near):
    first, second = near
    first.decide()
    assert second.begin(1) == [0, 2] and second.is_confirmed(1)


def test_a_state_that_was_being_written_is_not_read(near):
    first, second = near
    first.decide()
    second.window.memory[4] += 1  # its number, and not its checksum
    second.window.memory[12] = 0b101
    second.decide()
    assert second.failed() == [] and not second.is_undecided


def test_memory_that_is_freed_is_not_read(near):
    near[1].window.memory = np.empty(0, np.uint8)
    assert near[1].decide() == ""


def test_ranks_that_are_known_to_have_ended_have_failed_at_once():
    arbiter = Arbiter(0, 3)
    arbiter.note_over({2: 0})
    assert arbiter.failed() == [2]
    finding = Arbiter(0, 3, lambda: {1: 0})
    finding.decide()
    assert finding.failed() == [1] and not finding.was_cut_off(1)


def test_where_nobody_goes_on_a_rank_that_is_lost_has_failed_at_once():
    """No others are asked, and nobody waits for them."""
    arbiter = Arbiter(0, 4, goes_on=False)
    arbiter.suspect([1, 2, 3])
    assert arbiter.failed() == [1, 2, 3] and not arbiter.is_undecided and not arbiter.decide()
    agreeing = Arbiter(0, 4)
    agreeing.suspect([1, 2, 3])
    assert agreeing.failed() == [] and agreeing.is_undecided


def test_one_that_is_no_member_yet_has_lost_nobody():
    outside = Arbiter(0, 3, incarnation=1)
    assert outside.failed() == [] and not outside.was_cut_off(1)


def test_a_rank_is_proposed_once_it_is_linked():
    arbiter, linked = Arbiter(0, 2), set()
    arbiter.is_linked = linked.__contains__
    arbiter.note_over({1: 0})
    for _ in range(3):
        arbiter.decide()
        assert not arbiter.propose(1, 1) and arbiter.failed() == [1]
    linked.add(1)
    assert not arbiter.propose(1, 1)
    arbiter.decide()
    assert arbiter.failed() == []


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


def test_who_knows_all_gets_no_more_than_a_heartbeat_and_others_are_told_again():
    """It may have been an epoch behind, which it has entered since: then it follows."""
    arbiters, told = [Arbiter(rank, 2) for rank in range(2)], []
    for _ in range(2):
        arbiters[0].tell(1, lambda data: not told.append(data))
    assert told == [arbiters[0]._quorum.state.to_bytes()] * 2
    for _ in range(3):
        go_round(arbiters)
    arbiters[0].tell(1, told.append)
    assert told[2:] == [b""]
