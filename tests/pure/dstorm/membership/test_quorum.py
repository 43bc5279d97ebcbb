"""Ranks that lose each other, freeze and fail at any moment: at most one side goes on, and one does where it can."""

import random
from collections import defaultdict
from itertools import combinations, pairwise

import pytest

from dstorm.membership.decision import mask, ranks
from dstorm.membership.heartbeat import FLOOR_S, HeartbeatTimeout
from dstorm.membership.quorum import ALONE_S, ECHO_S, GRANT_S, LONGEST_S, SETTLE_S, Quorum
from dstorm.membership.votes import NONE, State, choose, first, from_bytes, is_quorum, key

pytestmark = pytest.mark.serial
STEP_S = 0.1
LONGEST_WRITE_S = GRANT_S / 2


class Job:
    """Simulated ranks. States travel between them, each late by some turns; a rank that has lost another hears nothing
    of it any more. Each rank tries to write all the time: it asks, and writes once a quorum has answered."""

    def __init__(self, size, seed=0, hosts=None):
        self.size, self.now = size, 0.0
        self.random = random.Random(seed)
        self.hosts = hosts or list(range(size))
        self.quorums = [Quorum(rank, size) for rank in range(size)]
        self.lives = [0] * size
        """The incarnation of each rank."""
        self.timeouts = [HeartbeatTimeout([r for r in range(size) if r != rank], 0.0) for rank in range(size)]
        self.on_way, self.cut, self.broken = [], set(), set()
        self.last = defaultdict(float)
        """When the last message from one rank to another arrives."""
        self.frozen, self.ended, self.left = {}, set(), {}
        self.known, self.known_started = {}, {}
        """The incarnations of which the launcher says that they have ended, and were started."""
        self.asked = [None] * size
        self.written = []
        """Each write: when, by which rank, and the members that it knew."""
        self.excluded = set()
        """Incarnations that ran as a rank wrote that goes on without them, and its state."""
        self.installed = {(1 << size) - 1}

    def running(self):
        return [
            r for r in range(self.size) if r not in self.ended | self.left.keys() and self.frozen.get(r, 0) <= self.now
        ]

    def send(self, rank, peer, kind, body):
        """By TCP: in order, unless the way is cut or the connection broken."""
        if (rank, peer) not in self.cut and frozenset((rank, peer)) not in self.broken:
            late = 0 if self.hosts[rank] == self.hosts[peer] else self.random.choice([0, 0, 1, 2])
            self.put_on_way(max(self.last[rank, peer], self.now + late * STEP_S), rank, peer, kind, body)

    def put_on_way(self, at, rank, peer, kind, body):
        self.last[rank, peer] = max(self.last[rank, peer], at)
        self.on_way.append((at, rank, peer, kind, body))

    def end(self, rank):
        """Its process ends: connections break at once, and ranks of its host see it."""
        self.ended.add(rank)
        for peer in range(self.size):
            self.break_off(rank, peer)

    def know(self):
        """The launcher tells all what it has seen by now."""
        self.known = {rank: self.lives[rank] for rank in self.ended}
        self.known_started = dict(enumerate(self.lives))

    def start_again(self, rank):
        """A rank that has ended begins anew, and connects to the others where that is possible."""
        self.ended.discard(rank)
        self.left.pop(rank, None)
        self.frozen.pop(rank, None)
        self.lives[rank] += 1
        self.quorums[rank] = Quorum(rank, self.size, self.lives[rank])
        self.timeouts[rank] = HeartbeatTimeout([r for r in range(self.size) if r != rank], self.now)
        self.asked[rank] = None
        self.on_way = [one for one in self.on_way if rank not in one[1:3]]
        self.last = defaultdict(float, {pair: at for pair, at in self.last.items() if rank not in pair})
        for peer in range(self.size):
            self.broken.discard(frozenset((rank, peer)))
            if peer != rank:
                self.timeouts[peer].begin(rank, self.now)
            if peer in self.ended | self.left.keys():
                self.break_off(rank, peer)
            elif self.hosts[peer] != self.hosts[rank]:  # the call shows it
                self.quorums[peer].note_over({rank: self.lives[rank] - 1})
        self.known_started = {**self.known_started, rank: self.lives[rank]}  # it publishes that before it asks

    def is_linked(self, rank, peer):
        return frozenset((rank, peer)) not in self.broken

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
                self.put_on_way(self.frozen[peer], rank, peer, kind, body)
            elif peer in self.running() and (frozenset((rank, peer)) not in self.broken):
                self.receive(peer, rank, kind, body)
        order = self.running()
        self.random.shuffle(order)
        for rank in order:
            self.live(rank)
        self.check()

    def receive(self, rank, peer, kind, body):
        own = self.quorums[rank]
        self.timeouts[rank].heard(peer, self.now)
        if kind == "state":
            own.note(peer, body, self.now)
        elif kind == "ask":
            self.send(rank, peer, "answer", (body, own.grant(peer, self.now)))
        elif self.asked[rank] is not None and body[0] == self.asked[rank][0]:
            self.asked[rank][1][peer] = body[1]

    def live(self, rank):
        own, timeout = self.quorums[rank], self.timeouts[rank]
        others = [peer for peer in range(self.size) if peer != rank]
        far = [peer for peer in others if self.hosts[peer] != self.hosts[rank]]
        own.suspect(timeout.silent([peer for peer in far if own.members >> peer & 1], self.now))
        own.suspect(peer for peer in far if own.members >> peer & 1 and not self.is_linked(rank, peer))
        meant = own.state.incarnations
        own.suspect(peer for peer in far if own.members >> peer & 1 and meant[peer] < self.lives[peer])
        for peer in ranks(own._suspected & own.members):
            if own.state.incarnations[peer] == self.lives[peer]:
                self.break_off(rank, peer)  # as the links do
        near = [peer for peer in self.ended | self.left.keys() if self.hosts[peer] == self.hosts[rank]]
        own.note_over({peer: self.lives[peer] for peer in near})
        own.note_over(self.known)
        own.note_started(self.known_started)
        self.admit(rank, own)
        own.decide(self.now, lambda peer: self.is_linked(rank, peer))
        self.installed.add(own.members)
        if own.why:
            self.left[rank] = own.why
            for peer in far:
                self.break_off(rank, peer)
            return
        for peer in others:
            self.send(rank, peer, "state", own.state)
            is_out = own.state.base & ~own.members & ~own.state.ended
            if is_out >> peer & 1 and own.state.incarnations[peer] == self.lives[peer]:
                self.break_off(rank, peer)  # it is cut off, once it was told
        self.write(rank)

    def admit(self, rank, own):
        """The lowest member proposes those that ask, and have connections to all members."""
        for peer in self.running():
            asks = self.quorums[peer]
            if asks.is_outside and all(self.is_linked(peer, one) for one in ranks(own.members)):
                own.propose(peer, self.lives[peer])

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
        """Of two ranks that go on, one goes on with the other."""
        live = [self.quorums[r] for r in range(self.size) if r not in self.ended | self.left.keys()]
        inside = [own for own in live if not own.is_outside and not own.is_undecided]
        for one, other in combinations(inside, 2):
            is_together = one.members >> other.rank & 1 or other.members >> one.rank & 1
            assert is_together or one.state.epoch != other.state.epoch, (one.state, other.state)
        if not any(self.lives):
            sets = sorted(self.installed, key=int.bit_count)
            for small, large in pairwise(sets):
                assert small & ~large == 0 or not (self.has(small) and self.has(large)), sets

    def has(self, some):
        return any(self.quorums[r].members == some for r in ranks(some) - self.ended - self.left.keys())

    def check_write(self, rank):
        """No live rank goes on without the one that writes; and nobody has written that goes on without it."""
        own = self.quorums[rank].state
        for other in set(range(self.size)) - self.ended - self.left.keys():
            its = self.quorums[other].state
            if its.epoch >= own.epoch:  # one of an earlier epoch may not have heard of the last ones
                assert its.members >> rank & 1 or not its.members >> other & 1, (own, its)
        for life, other, state in self.excluded:
            is_later = state.epoch >= own.epoch
            assert (life, other) != (self.lives[rank], rank) or not is_later, (own, state)
        running = set(range(self.size)) - self.ended - self.left.keys()
        self.excluded |= {(self.lives[r], r, own) for r in running if not own.members >> r & 1}

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.turn()

    def sides(self):
        """The members that the ranks know that go on. One that was started again goes on once it is a member."""
        return {
            tuple(sorted(ranks(self.quorums[r].members)))
            for r in range(self.size)
            if r not in self.ended | self.left.keys() and not self.quorums[r].is_outside
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


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_of_two_parts_that_hear_nothing_of_each_other_one_goes_on(size):
    """Where they see that their connections break: dstorm/membership/test_divided_barriers.py."""
    for seed, (one, other) in enumerate(divided(size)):
        if size > 3 and seed % 3:
            continue
        job = Job(size, seed)
        job.run(1.0)
        cut(job, one, other, silently=True)
        job.run(18.0)
        goes_on = one if is_quorum(mask(one), (1 << size) - 1) else other
        assert job.sides() == {tuple(sorted(goes_on))}, job.left
        assert job.left.keys() == set(range(size)) - goes_on
        late = [rank for at, rank, _ in job.written if at > job.now - 1.0]
        assert set(late) == goes_on
        assert all("which may be going on" in why or "go on without it" in why for why in job.left.values())


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
    job.known = dict.fromkeys(known, 0)
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


EVENTS = ["break", "one way", "both ways", "end", "freeze", "divide", "known"]


def play(seed, kinds):
    """Cuts of one or both ways, ends, freezes, at any moments. `check` and `check_write` look after each turn."""
    choose_ = random.Random(seed)
    size = choose_.randrange(2, 7)
    job = Job(size, seed, [choose_.randrange(size) for _ in range(size)] if seed % 3 == 0 else None)
    events = sorted(choose_.uniform(0.2, choose_.choice([2.0, 12.0])) for _ in range(choose_.randrange(1, len(kinds))))
    for at in events:
        job.run(at - job.now)
        one, other = choose_.sample(range(size), 2)
        kind = choose_.choice(kinds)
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
        elif kind == "again":
            for rank in sorted(job.ended | job.left.keys()):
                if choose_.random() < 0.7:
                    job.ended.add(rank)
                    job.start_again(rank)
        else:
            job.know()
    job.run(30.0)
    return job


@pytest.mark.parametrize("seed", range(20))
def test_at_most_one_side_goes_on_whatever_happens(seed):
    job = play(seed, EVENTS)
    assert len(job.sides()) <= 1, job.left
    assert not any(job.quorums[r].is_undecided for r in job.running())


@pytest.mark.parametrize("seed", range(40))
def test_at_most_one_side_goes_on_where_ranks_come_back(seed):
    job = play(seed, [*EVENTS, "end", "end", "again", "again", "again"])
    assert len(job.sides()) <= 1, job.left
    assert not any(job.quorums[r].is_undecided for r in job.running())


@pytest.mark.parametrize("seed", range(20))
def test_ranks_that_end_and_are_started_again_come_in(seed):
    """Where nothing else fails, all that run are members in the end, if any is."""
    job = play(seed, ["end"] * 4 + ["again"] * 5 + ["known"] * 2)
    assert not job.sides() or not any(job.quorums[r].is_outside for r in job.running()), job.left


def test_ranks_come_back_one_after_the_other():
    """Each rank of three hosts ends, and is started again; then two at once."""
    job = Job(4, hosts=[0, 0, 1, 2])
    job.run(1.0)
    for ended in ([0], [1], [2], [3], [0, 3], [1, 2]):
        for rank in ended:
            job.end(rank)
        if len(ended) > 1:  # those that live are no majority
            job.know()
        job.run(2.0)
        assert job.sides() == {tuple(sorted(set(range(4)) - {*ended}))}, job.left
        for rank in ended:
            job.start_again(rank)
        job.run(2.0)
        assert job.sides() == {(0, 1, 2, 3)} and not job.left
        assert all(own.state.prior == 0 and own.state.newcomer == NONE for own in job.quorums)
    assert {own.state.epoch for own in job.quorums} == {8}


def test_who_was_just_confirmed_is_not_left_out_at_once():
    own = Quorum(0, 3)
    assert own.grant(1, 5.0) == 0b111
    own.suspect([1])
    own.decide(5.0 + GRANT_S / 2)
    assert own.vote == 0b111 and own.is_undecided and not own.may_ask
    own.note_over({1: 0})  # it has ended for certain
    own.decide(5.0 + GRANT_S / 2)
    assert own.vote == 0b101


def test_the_choice_is_the_same_on_all_and_the_largest():
    for size in range(2, 6):
        everyone = (1 << size) - 1
        for seed in range(60):
            choice = random.Random(seed)
            keeps = [
                everyone & ~mask(r for r in range(size) if choice.random() < 0.3 and r != rank) for rank in range(size)
            ]
            state = first(size)._replace(keeps=tuple(keeps))
            sides = [
                some for some in range(1, 1 << size)
                if all(not some & ~keeps[r] for r in ranks(some))
            ]  # fmt: skip
            assert choose(state) == max(sides, key=lambda some: key(some, everyone))


def test_many_losses_are_looked_through_in_time():
    size = 40
    keeps = [
        ((1 << size) - 1) & ~(1 << (rank + 1) % size) & ~(1 << (rank + 7) % size) | 1 << rank for rank in range(size)
    ]
    found = choose(first(size)._replace(keeps=tuple(keeps)))
    assert found and all(not found & ~keeps[rank] for rank in ranks(found))


def test_a_state_travels_as_bytes():
    over, started, incarnations = tuple(range(9)), (0, 3) + (0,) * 7, (1,) * 9
    state = State(0b101, tuple(range(9, 18)), over, started, incarnations, -1, 0b111, 0b110, (3, 7))
    assert from_bytes(state.to_bytes(), 9) == state
    with pytest.raises(ValueError, match="144 are expected"):
        from_bytes(b"abc", 9)


def lost(size, rank, *others):
    """A state in which `rank` has lost `others`, and nobody else anybody."""
    everyone = (1 << size) - 1
    keeps = tuple(everyone & ~mask(others) if r == rank else everyone for r in range(size))
    return first(size)._replace(keeps=keeps)


def test_a_rank_asks_only_while_nothing_is_in_doubt():
    doubting = Quorum(0, 3)
    doubting.note(1, lost(3, 1, 2), 0.0)
    doubting.decide(0.0)
    assert doubting.is_undecided and not doubting.may_ask and not doubting.is_confirmed({1: 0b111, 2: 0b111})
    left = Quorum(0, 3)
    left.note(1, first(3)._replace(members=0b110), 0.0)
    assert left.why and left.is_undecided and not left.may_ask


def test_a_rank_follows_those_that_go_on_with_it():
    own = Quorum(0, 3)
    own.note(1, first(3)._replace(members=0b011), 0.0)
    assert own.members == 0b011 and not own.why


def test_others_say_nothing_of_this_rank_itself():
    own = Quorum(0, 3)
    own.suspect([0])
    own.note_over({0: 0})
    own.note(1, first(3)._replace(keeps=(0b010, 0b111, 0b111), over=(1, 0, 0)), 0.0)
    own.decide(0.0)
    assert (own.vote, own.state.ended, own.members) == (0b111, 0, 0b111)


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


def begun(rank, members=0b0110):
    """Rank 1 or 2 of four, of which `members` go on without the others."""
    own = Quorum(rank, 4)
    own.note_over(dict.fromkeys(ranks(0b1111 & ~members), 0))
    own.decide(0.0)
    keeps = tuple(members if members >> other & 1 else 0b1111 for other in range(4))
    own.note(3 - rank, own.state._replace(keeps=keeps), 0.0)
    own.decide(0.0)
    assert own.members == members
    return own


def test_of_two_epochs_after_one_that_with_fewer_members_goes_on():
    """Rank 1 proposes rank 0, which enters by rank 2. Rank 1 has lost that one, goes on alone, and admits rank 3."""
    first, second, newcomer, other = begun(1), begun(2), Quorum(0, 4, 1), Quorum(3, 4, 1)
    assert not first.propose(0, 1)
    second.note(1, first.state, 1.0)
    second.decide(1.0)
    second.decide(1.0)
    newcomer.note(2, second.state, 1.0)
    assert newcomer.members == second.members == 0b0111
    first.suspect([2])
    for now in (20.0, 21.0):
        first.decide(now)
    assert first.members == 0b0010 and not first.propose(3, 1)
    first.decide(21.0)
    other.note(1, first.state, 21.0)
    first.note(3, other.state, 21.0)
    first.decide(21.0)
    assert first.state.epoch == newcomer.state.epoch == 1 and first.members == other.members == 0b1010
    second.suspect([1])
    newcomer.note(1, first.state, 21.0)
    newcomer.suspect([1])
    now = 21.0
    while now < 30.0:
        second.note(0, newcomer.state, now)
        newcomer.note(2, second.state, now)
        for own in (second, newcomer):
            own.decide(now)
        now += 0.1
    assert "[1, 3] have lost it" in newcomer.why and second.members == 0b0111 and not second.may_ask
    assert not newcomer.is_confirmed({2: second.grant(0, now)}) and first.is_confirmed({3: other.grant(1, now)})


def test_one_that_learns_of_a_decision_needs_the_members_before_no_more():
    state = first(4, 0b1110)._replace(
        incarnations=(1, 0, 0, 0), over=(1, 0, 0, 0), started=(1, 0, 0, 0), epoch=1, base=0b1111, prior=0b1110,
        members=0b1111, keeps=(0b0111, 0b0111, 0b0111, 0b1111),
    )  # fmt: skip
    own = Quorum(1, 4)
    own.state = state
    own.note(2, state._replace(members=0b0111, prior=0), 1.0)
    assert own.members == 0b0111 and own.propose(0, 1)


def test_an_incarnation_that_has_ended_is_not_proposed():
    own = begun(1)
    own.note_over({0: 1})
    assert not own.propose(0, 1) and own.state.newcomer == NONE


def test_one_that_has_heard_of_a_newer_incarnation_does_not_go_on_alone():
    """That one may have been admitted by others."""
    own = Quorum(1, 2)
    own.note_started({0: 1})
    own.note_over({0: 0})
    own.decide(0.0)
    assert own.members == 0b11
    own.note_over({0: 1})
    own.decide(0.0)
    assert own.members == 0b10


@pytest.mark.parametrize("turns", [
    # It has not called this rank for long.
    [(0.0, False, 0), (0.9, False, 0), (1.1, False, 1)],
    # It waits to be linked: the main thread of this rank may compute meanwhile. Others may come after it.
    [(0.0, False, 0), (0.9, None, 0), (1.8, False, 0), (2.7, None, 0), (9.0, None, 0), (9.0, "ended", 1)],
])  # fmt: skip
def test_a_newcomer_is_accepted_late_where_it_is_not_linked(turns):
    """`turns`: when, in ECHO_S, whether it is linked, and the epoch then. Accepted without a link it is left out."""
    first, second = begun(1), begun(2)
    first.propose(0, 1)
    second.note(1, first.state, 1.0)
    for now, is_linked, epoch in turns:
        if is_linked == "ended":
            second.note_over({0: 1})
        second.decide(1.0 + now * ECHO_S, lambda rank, is_linked=is_linked: None if is_linked == "ended" else is_linked)
        assert second.state.epoch == epoch
    assert is_linked != "ended" or second.vote == 0b0110


def accepted():
    """Ranks 1 and 2 of the members 1 to 3: the first has proposed rank 0, and the second has accepted that."""
    first, second = begun(1, 0b1110), begun(2, 0b1110)
    assert not first.propose(0, 1)
    second.note(1, first.state, 1.0)
    second.decide(1.0)
    assert second.state.newcomer == (0, 1)
    return first, second


def test_one_that_has_voted_without_a_member_enters_no_epoch_with_it():
    """Though it had accepted the newcomer before, as all others have."""
    first, second = accepted()
    second.suspect([3])
    second.decide(1.0)
    second.note(3, first.state, 1.0)
    second.decide(1.0)
    assert second.vote == 0b0110 and second.state.epoch == 0


def test_one_that_has_voted_without_a_rank_does_not_follow_it_and_is_suspected():
    first, second = accepted()
    for rank in (2, 3):
        first.note(rank, second.state, 1.0)
    first.decide(1.0)
    second.suspect([1])
    second.decide(1.0)
    second.note(1, first.state, 1.0)
    assert first.state.epoch == 1 and second.state.epoch == 0 and second.vote == 0b1100
    first.note(2, second.state, 1.0)
    first.decide(1.0)
    assert first.vote == 0b1011


def test_nothing_is_granted_to_the_next_incarnation_of_a_rank():
    """It would hold up the vote without that rank, if it is lost again."""
    own = begun(1)
    own.grant(2, 5.0)
    own._begin(0b0110, 0b0110, 1, (0, 0, 1, 0))
    own.suspect([2])
    own.decide(5.0)
    assert own.vote == 0b0010


def test_a_process_leaves_where_a_later_incarnation_has_its_place():
    own = Quorum(0, 3)
    own.note(1, first(3)._replace(incarnations=(1, 0, 0)), 0.0)
    assert own.why == "another process has taken its place"
