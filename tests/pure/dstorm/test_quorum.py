"""Ranks that lose each other, freeze and fail at any moment: at most one side goes on, and one does where it can."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from dstorm.membership import quorum
from dstorm.membership.decision import mask, ranks
from dstorm.membership.heartbeat import FLOOR_S, HeartbeatTimeout
from dstorm.membership.quorum import (
    ALONE_S,
    ECHO_S,
    GRANT_S,
    LONGEST_S,
    SETTLE_S,
    Quorum,
    State,
    choose,
    from_bytes,
    is_quorum,
)

pytestmark = pytest.mark.serial
STEP_S = 0.05
LONGEST_WRITE_S = GRANT_S / 2


class Job:
    """Simulated ranks. States travel between them, each late by some turns; a rank that has lost another hears nothing
    of it any more. Each rank tries to write all the time: it asks, and writes once a quorum has answered."""

    def __init__(self, size, seed=0, hosts=None):
        self.size, self.now = size, 0.0
        self.random = random.Random(seed)
        self.hosts = hosts or list(range(size))
        self.quorums = [Quorum(rank, size) for rank in range(size)]
        self.timeouts = [HeartbeatTimeout([r for r in range(size) if r != rank], 0.0) for rank in range(size)]
        self.on_way, self.cut, self.broken = [], set(), set()
        self.frozen, self.ended, self.left = {}, set(), {}
        self.known = set()
        """The ranks of which the launcher says that they have ended."""
        self.asked = [None] * size
        self.written = []
        """Each write: when, by which rank, and the members that it knew."""
        self.installed = {(1 << size) - 1}

    def running(self):
        return [
            r for r in range(self.size) if r not in self.ended | self.left.keys() and self.frozen.get(r, 0) <= self.now
        ]

    def send(self, rank, peer, kind, body):
        """By TCP: in order, unless the way is cut or the connection broken."""
        if (rank, peer) not in self.cut and frozenset((rank, peer)) not in self.broken:
            late = 0 if self.hosts[rank] == self.hosts[peer] else self.random.choice([0, 0, 1, 2])
            last = max((at for at, one, other, *_ in self.on_way if (one, other) == (rank, peer)), default=0.0)
            self.on_way.append((max(last, self.now + late * STEP_S), rank, peer, kind, body))

    def end(self, rank):
        """Its process ends: connections break at once, and ranks of its host see it."""
        self.ended.add(rank)
        for peer in range(self.size):
            self.break_off(rank, peer)

    def break_off(self, rank, peer):
        if rank != peer and self.hosts[rank] != self.hosts[peer]:
            self.broken.add(frozenset((rank, peer)))

    def turn(self):
        self.now += STEP_S
        ready, self.on_way = (
            [one for one in self.on_way if one[0] <= self.now],
            [one for one in self.on_way if one[0] > self.now],
        )
        for _, rank, peer, kind, body in ready:
            if peer in self.frozen and self.frozen[peer] > self.now:
                self.on_way.append((self.frozen[peer], rank, peer, kind, body))
            elif peer in self.running() and (frozenset((rank, peer)) not in self.broken):
                self.receive(peer, rank, kind, body)
        order = self.running()
        self.random.shuffle(order)
        for rank in order:
            self.live(rank)
        self.check()

    def receive(self, rank, peer, kind, body):
        own = self.quorums[rank]
        if peer in ranks(own._suspected):
            return
        self.timeouts[rank].heard(peer, self.now)
        if kind == "state":
            own.note(peer, body, self.now)
        elif kind == "ask":
            self.send(rank, peer, "answer", (body, own.grant(peer, self.now)))
        elif self.asked[rank] is not None and body[0] == self.asked[rank][0]:
            self.asked[rank][1][peer] = body[1]

    def live(self, rank):
        own, timeout = self.quorums[rank], self.timeouts[rank]
        timeout.note_running(self.now)
        others = [peer for peer in range(self.size) if peer != rank]
        far = [peer for peer in others if self.hosts[peer] != self.hosts[rank]]
        own.suspect(timeout.silent([peer for peer in far if own.members >> peer & 1], self.now))
        own.suspect(peer for peer in far if frozenset((rank, peer)) in self.broken)
        for peer in ranks(own._suspected):
            self.break_off(rank, peer)  # as the links do
        own.note_ended(peer for peer in self.ended | self.left.keys() if self.hosts[peer] == self.hosts[rank])
        own.note_ended(self.known)
        own.decide(self.now)
        self.installed.add(own.members)
        if own.why:
            self.left[rank] = own.why
            for peer in far:
                self.break_off(rank, peer)
            return
        for peer in others:
            if not own._suspected >> peer & 1:
                self.send(rank, peer, "state", own.state)
            if not own.members >> peer & 1:  # it is cut off, once it was told
                self.break_off(rank, peer)
        self.write(rank)

    def write(self, rank):
        own = self.quorums[rank]
        if self.asked[rank] is not None:
            at, votes = self.asked[rank]
            if own.is_confirmed(votes) and self.now - at < LONGEST_WRITE_S:
                self.written.append((self.now, rank, own.members))
                self.check_write(rank)
            if self.now - at < LONGEST_WRITE_S and not own.is_confirmed(votes):
                return
            self.asked[rank] = None
        if own.may_ask:
            self.asked[rank] = (self.now, {})
            for peer in ranks(own.members & ~(1 << rank)):
                self.send(rank, peer, "ask", self.now)

    def check(self):
        sets = sorted(self.installed, key=int.bit_count)
        for one, other in pairwise(sets):
            assert one & ~other == 0 or not self.lives(one) or not self.lives(other), [sorted(ranks(s)) for s in sets]

    def lives(self, some):
        return any(self.quorums[r].members == some for r in ranks(some) - self.ended - self.left.keys())

    def check_write(self, rank):
        """No live rank goes on without the one that writes."""
        for other in set(range(self.size)) - self.ended - self.left.keys():
            assert self.quorums[other].members >> rank & 1 or not self.quorums[other].members >> other & 1, (
                rank,
                other,
            )

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.turn()

    def sides(self):
        """The members that the ranks know that go on."""
        return {
            tuple(sorted(ranks(self.quorums[r].members)))
            for r in range(self.size)
            if r not in self.ended | self.left.keys()
        }


def divided(size):
    """Each way to divide `size` ranks into two parts, one of which may have no rank."""
    for number in range(size // 2 + 1):
        for one in combinations(range(size), number):
            yield set(one), set(range(size)) - set(one)


def cut(job, one, other, silently):
    for rank in one:
        for peer in other:
            if silently and job.hosts[rank] != job.hosts[peer]:
                job.cut |= {(rank, peer), (peer, rank)}
            elif not silently:
                job.break_off(rank, peer)


@pytest.mark.parametrize("silently", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_of_two_parts_one_goes_on(size, silently):
    for seed, (one, other) in enumerate(divided(size)):
        if size > 3 and silently and seed % 3:
            continue
        job = Job(size, seed)
        job.run(1.0)
        cut(job, one, other, silently)
        job.run(18.0 if silently else 5.0)
        goes_on = one if is_quorum(mask(one), (1 << size) - 1) else other
        assert job.sides() == {tuple(sorted(goes_on))}, job.left
        assert job.left.keys() == set(range(size)) - goes_on
        late = [rank for at, rank, _ in job.written if at > job.now - 0.5]
        assert set(late) == goes_on
        assert all("which may be going on" in why or "go on without it" in why for why in job.left.values())


def test_two_ranks_that_lose_only_each_other_cost_one_rank():
    for size in (3, 4, 5):
        for pair in combinations(range(size), 2):
            job = Job(size)
            job.run(1.0)
            job.break_off(*pair)
            job.run(4.0)
            assert job.sides() == {tuple(sorted(set(range(size)) - {pair[1]}))}, job.left


def test_a_rank_that_wakes_up_late_goes_on_nowhere():
    """The gap that it finds is its own, and not how long the others are silent now and then."""
    for frozen in range(3):
        job = Job(3)
        job.run(1.0)
        job.frozen[frozen] = job.now + 40.0
        job.run(45.0)
        assert job.sides() == {tuple({0, 1, 2} - {frozen})} and job.left.keys() == {frozen}
        assert not any(rank == frozen and at > 1.5 for at, rank, _ in job.written)
        assert all(one.suspect_after_s == FLOOR_S for one in job.timeouts)


def test_a_job_that_is_frozen_as_a_whole_goes_on():
    job = Job(3)
    job.run(1.0)
    job.frozen = dict.fromkeys(range(3), job.now + 100.0)
    job.run(106.0)
    assert job.sides() == {(0, 1, 2)} and not job.left


def test_failures_one_after_the_other_leave_a_majority_of_those_before():
    """Rank 1 ends for certain, as a rank of its host sees; of the other three two go on without the third."""
    job = Job(4, hosts=[0, 1, 1, 2])
    job.run(1.0)
    job.end(1)
    job.run(1.0)
    assert job.sides() == {(0, 2, 3)}
    cut(job, {0}, {2, 3}, False)
    job.run(5.0)
    assert job.sides() == {(2, 3)} and job.left.keys() == {0}


@pytest.mark.parametrize(("ended", "known", "sides"), [
    ({2, 3}, set(), {(0, 1)}), ({0, 1}, set(), set()), ({0, 1}, {0, 1}, {(2, 3)}), ({0, 1, 2}, {0, 1}, {(3,)}),
])  # fmt: skip
def test_a_host_that_ends_whole(ended, known, sides):
    """Without the lowest rank half of the ranks go on only where the launcher knows that the others have ended."""
    job = Job(4, hosts=[0, 0, 1, 1])
    job.run(1.0)
    for rank in ended:
        job.end(rank)
    job.known = known
    job.run(5.0)
    assert job.sides() == sides, job.left


def test_a_rank_that_has_ended_for_certain_holds_up_nobody():
    job = Job(3, hosts=[0, 1, 1])
    job.run(1.0)
    job.end(1)
    job.turn()
    job.turn()
    assert not any(one.is_undecided for rank, one in enumerate(job.quorums) if rank == 2)
    job.run(0.6)
    assert job.sides() == {(0, 2)}


@pytest.mark.parametrize("seed", range(60))
def test_at_most_one_side_goes_on_whatever_happens(seed):
    """Cuts of one or both ways, ends, freezes, at any moments. `check` and `check_write` look after each turn."""
    choose_ = random.Random(seed)
    size = choose_.randrange(2, 7)
    job = Job(size, seed, [choose_.randrange(size) for _ in range(size)] if seed % 3 == 0 else None)
    events = sorted(choose_.uniform(0.2, choose_.choice([2.0, 12.0])) for _ in range(choose_.randrange(1, 8)))
    for at in events:
        job.run(at - job.now)
        one, other = choose_.sample(range(size), 2)
        kind = choose_.choice(["break", "one way", "both ways", "end", "freeze", "divide", "known"])
        if kind == "break":
            job.break_off(one, other)
        elif kind in ("one way", "both ways") and job.hosts[one] != job.hosts[other]:
            job.cut |= {(one, other)} if kind == "one way" else {(one, other), (other, one)}
        elif kind == "end":
            job.end(one)
        elif kind == "freeze":
            job.frozen[one] = job.now + choose_.choice([0.5, 3.0, 15.0])
        elif kind == "divide":
            part = {r for r in range(size) if choose_.random() < 0.5}
            cut(job, part, set(range(size)) - part, choose_.random() < 0.5)
        else:
            job.known |= job.ended
    job.run(30.0)
    assert len(job.sides()) <= 1, job.left
    assert not any(job.quorums[r].is_undecided for r in job.running())


def test_who_was_just_confirmed_is_not_left_out_at_once():
    own = Quorum(0, 3)
    assert own.grant(1, 5.0) == 0b111
    own.suspect([1])
    own.decide(5.0 + GRANT_S / 2)
    assert own.vote == 0b111 and own.is_undecided and not own.may_ask
    own.decide(5.0 + 2 * GRANT_S)
    assert own.vote == 0b101


def test_the_choice_is_the_same_on_all_and_the_largest():
    for size in range(2, 6):
        everyone = (1 << size) - 1
        for seed in range(60):
            choice = random.Random(seed)
            keeps = [
                everyone & ~mask(r for r in range(size) if choice.random() < 0.3 and r != rank) for rank in range(size)
            ]
            state = State(everyone, 0, tuple(keeps))
            sides = [
                some for some in range(1, 1 << size)
                if all(not some & ~keeps[r] for r in ranks(some))
            ]  # fmt: skip
            assert choose(state) == max(sides, key=lambda some: quorum._key(some, everyone))


def test_many_losses_are_looked_through_in_time():
    size = 40
    keeps = [
        ((1 << size) - 1) & ~(1 << (rank + 1) % size) & ~(1 << (rank + 7) % size) | 1 << rank for rank in range(size)
    ]
    found = choose(State((1 << size) - 1, 0, tuple(keeps)))
    assert found and all(not found & ~keeps[rank] for rank in ranks(found))


def test_a_state_travels_as_bytes():
    state = State(0b101, 0b010, tuple(range(9, 18)))
    assert from_bytes(state.to_bytes(), 9) == state
    with pytest.raises(ValueError, match="22 are expected"):
        from_bytes(b"abc", 9)


def lost(size, rank, *others):
    """A state in which `rank` has lost `others`, and nobody else anybody."""
    everyone = (1 << size) - 1
    return State(everyone, 0, tuple(everyone & ~mask(others) if r == rank else everyone for r in range(size)))


def test_a_rank_asks_only_while_nothing_is_in_doubt():
    doubting = Quorum(0, 3)
    doubting.note(1, lost(3, 1, 2), 0.0)
    doubting.decide(0.0)
    assert doubting.is_undecided and not doubting.may_ask and not doubting.is_confirmed({1: 0b111, 2: 0b111})
    left = Quorum(0, 3)
    left.note(1, State(0b110, 0, (0b111,) * 3), 0.0)
    assert left.why and left.is_undecided and not left.may_ask


def test_a_rank_follows_those_that_go_on_with_it():
    own = Quorum(0, 3)
    own.note(1, State(0b011, 0, (0b111,) * 3), 0.0)
    assert own.members == 0b011 and not own.why


def test_others_say_nothing_of_this_rank_itself():
    own = Quorum(0, 3)
    own.suspect([0])
    own.note_ended([0])
    own.note(1, State(0b111, 0b001, (0b010, 0b111, 0b111)), 0.0)
    own.decide(0.0)
    assert (own.vote, own.state.ended, own.members) == (0b111, 0, 0b111)


def test_ranks_that_have_ended_are_left_out_at_once():
    own = Quorum(0, 3)
    own.note_ended([2])
    own.decide(0.0)
    assert own.vote == 0b011
    own = Quorum(0, 3)
    own.grant(1, 5.0)
    own.suspect([1])
    own.note_ended([1])
    own.decide(5.0)
    assert own.vote == 0b101


def test_a_rank_votes_with_others_that_choose_the_same_once_they_have_settled():
    own = Quorum(0, 3)
    own.note(1, lost(3, 1, 2), 0.0)
    own.decide(0.0)
    assert own.vote == 0b111
    own.decide(1.1 * SETTLE_S)
    assert own.vote == 0b011
    granted = Quorum(0, 3)
    granted.grant(2, 0.0)
    for now, vote in ((0.0, 0b111), (0.9 * GRANT_S, 0b111), (1.1 * GRANT_S, 0b011)):
        granted.note(1, lost(3, 1, 2), now)
        granted.decide(now)
        assert granted.vote == vote


def test_a_rank_that_has_not_answered_is_waited_for_and_then_suspected():
    own = Quorum(0, 3)
    own.note(1, lost(3, 1, 2), 0.0)
    own.decide(0.5)
    own.decide(0.5 + 2 * SETTLE_S)
    assert own.vote == 0b111
    for _ in range(2):
        own.decide(0.6 + ECHO_S)
    assert own.vote == 0b101


def test_ranks_that_never_choose_the_same_leave():
    own, now = Quorum(0, 4), 0.0
    own.note(2, lost(4, 2, 3), now)
    while now < LONGEST_S:
        own.note(1, lost(4, 1), now)
        own.note(2, lost(4, 2, 3), now)
        own.decide(now)
        assert own.vote == 0b1111 and not own.why
        now += 1.0
    own.decide(LONGEST_S + 1.0)
    assert own.why.startswith("nobody knows")


def test_a_rank_that_has_lost_all_others_waits_for_news_and_leaves():
    own = Quorum(0, 3)
    own.suspect([1, 2])
    for now in (0.0, 0.9 * ALONE_S):
        own.decide(now)
        assert not own.why
    own.decide(1.1 * ALONE_S)
    assert "lost ranks [1, 2]" in own.why
