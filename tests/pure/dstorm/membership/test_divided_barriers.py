"""Simulated ranks whose network is divided at any turn of a barrier: one side goes on, and leaves it alike."""

from functools import partial
from itertools import combinations

import pytest

from dstorm import Group, SimulatedTransport
from dstorm.membership import quorum
from dstorm.membership.decision import mask, ranks
from dstorm.membership.quorum import Quorum
from dstorm.membership.resilient import SurvivingTransport
from dstorm.membership.votes import is_quorum
from dstorm.transports.simulated.transport import SimulatedWindow

pytestmark = pytest.mark.serial
ARENA = 1 << 23
BARRIERS = 3


@pytest.fixture(autouse=True)
def in_haste(monkeypatch):
    """Virtual time, too, takes turns."""
    for name, seconds in (("SETTLE_S", 0.03), ("ALONE_S", 0.15), ("GRANT_S", 0.03)):
        monkeypatch.setattr(quorum, name, seconds)


class Network:
    """Which ranks have lost each other. The pairs `lost` do so when the ranks have looked for failures `at` times."""

    def __init__(self, size, lost, at):
        self.group = Group(size, at)
        self.quorums = [Quorum(rank, size) for rank in range(size)]
        self.written = []
        self._coming, self._at, self._lost = lost, at, set()

    def reaches(self, rank, peer):
        return frozenset((rank, peer)) not in self._lost

    def find_failed(self, rank):
        """What the links do in their threads."""
        self._at -= 1
        if not self._at:
            self._lost = self._coming
        own = self.quorums[rank]
        for peer in range(self.group.size):
            if peer != rank and not self.reaches(rank, peer):
                own.suspect([peer])
            elif peer != rank and peer not in self.group.failed:
                own.note(peer, self.quorums[peer].state, self.group.now)
        own.decide(self.group.now)
        if own.why:
            self.group._fail(rank)
        return sorted(set(range(self.group.size)) - ranks(own.members))

    def write(self, rank):
        """Write if a quorum confirms it; nobody lives then that goes on without this rank."""
        own, now = self.quorums[rank], self.group.now
        others = [peer for peer in ranks(own.members) - {rank} - self.group.failed if self.reaches(rank, peer)]
        if own.is_confirmed({peer: self.quorums[peer].grant(rank, now) for peer in others}):
            self.written.append(rank)
            live = set(range(self.group.size)) - self.group.failed - {rank}
            assert all(self.quorums[peer].members & (1 << rank | 1 << peer) != 1 << peer for peer in live)

    def run(self):
        def live(rank):
            inner = SimulatedTransport(self.group, rank)
            arena = Divided(self.group, rank, ARENA)
            arena.reaches = partial(self.reaches, rank)
            transport = SurvivingTransport(inner, arena, lambda: self.find_failed(rank), 500.0)
            lists = []
            for _ in range(BARRIERS):
                lists.append(transport._barrier.enter("a test"))
                if transport.view.lowest == rank:
                    self.write(rank)
            while self._at > 0 or self.quorums[rank].is_undecided:
                transport.pause(14)
            transport.barrier("the end")
            return lists

        return self.group.run(live)


class Divided(SimulatedWindow):
    """A window of a rank, whose Puts reach only ranks that it has not lost."""

    def put(self, source, peer, offset):
        if self.reaches(peer):
            super().put(source, peer, offset)

    def flush(self, peers):
        super().flush(list(filter(self.reaches, peers)))


def check(size, lost, at, goes_on):
    network = Network(size, lost, at)
    lists = network.run()
    assert network.group.failed == set(range(size)) - goes_on
    ends = [lists[rank] for rank in sorted(goes_on)]
    assert all(other == ends[0] for other in ends)
    members = {network.quorums[rank].members for rank in goes_on}
    assert mask(goes_on) in members and members <= {mask(goes_on), mask(range(size))}  # some had left before
    assert set(network.written) <= {0, min(goes_on)}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("size", [2, 3, 4])
def test_of_two_parts_one_leaves_the_barriers(size, seed):
    """All ways to divide the ranks, at every turn: each seed takes every eighth."""
    everyone = set(range(size))
    for number in range(1, size // 2 + 1):
        for one in map(set, combinations(everyone, number)):
            lost = {frozenset((rank, peer)) for rank in one for peer in everyone - one}
            goes_on = one if is_quorum(mask(one), mask(everyone)) else everyone - one
            for at in range(1 + seed, 8 * size, 8):
                check(size, lost, at, goes_on)


@pytest.mark.parametrize("size", [3, 4])
def test_a_pair_that_loses_each_other_costs_the_higher_rank(size):
    for pair in combinations(range(size), 2):
        for at in range(1, 8 * size, size):
            check(size, {frozenset(pair)}, at, set(range(size)) - {pair[1]})
