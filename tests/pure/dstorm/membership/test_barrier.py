"""Meetings that name who is missing."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest
from barriers import before_looks, interrupt, run, until, until_there
from interleaved import interleaved

from dstorm import ClosedError, DeadlinePassed, Group, MismatchedCalls, PeerLost, SimulatedTransport
from dstorm.membership.barriers.barrier import Barrier, nbytes
from dstorm.membership.barriers.gathering import GatheringBarrier
from dstorm.membership.decision import DEPARTED, OPEN, Generation, Word
from dstorm.view import FaultTolerantView, Member
from dstorm.waits.wait import WaitState


def alone(size, absent=(), **options):
    """The barrier of rank 0, whose view may change; the test gives it the words of the others."""
    transport = SimulatedTransport(Group(1, 0), 0)
    transport.rank, transport.size, transport.view = 0, size, FaultTolerantView(size, absent)
    transport.returns = SimpleNamespace(
        admit_all=lambda: None, poll=lambda: False, welcome=lambda *_: None, watch=lambda rank: None
    )  # fmt: skip
    window = SimpleNamespace(
        memory=np.zeros(nbytes(size), np.uint8), sync=lambda: None, put=lambda *_: None, flush=lambda *_: None
    )  # fmt: skip
    return Barrier(transport, window, 5.0, **options)


def test_no_heartbeat_is_published_in_memory_that_is_freed():
    """Another thread has looked whether the session is over before it was."""

    def live(rank, mine, transport):
        mine.close()
        for beat in (mine.heartbeat, mine.count_step):
            mine._published_at = -1e9
            beat()

    run(live)


def test_two_threads_close_the_last_vectors():
    """Else the rank would count as one with an open vector, which the others do not wait for without a deadline."""
    made = []

    def prepare():
        made.append(alone(1))
        made[-1].opened()
        made[-1].opened()
        return (made[-1].closed,) * 2

    for _ in interleaved(Barrier.closed.__code__, prepare):
        assert not made[-1]._open and not made[-1]._flags & OPEN
    assert len(made) > 10


CODES = {name: getattr(Barrier, name) for name in ("check", "_read", "_note", "_mark_failed", "follow")}


@pytest.mark.parametrize("code", CODES)
def test_two_threads_that_follow_an_admission_take_the_newcomer_for_alive(code):
    """Whatever they have found of its former incarnation."""
    made = []

    def prepare():
        ended = [1]
        barrier = alone(3, [1], find_failed=lambda: list(ended))
        barrier._transport.returns.watch = lambda rank: ended.clear()
        cell = np.zeros(barrier._cells.nbytes, np.uint8)
        at = barrier._cells.at(2)
        barrier._cells.write(cell, Word(generation=Generation(1, 1, 1)), b"")
        barrier._window.memory[at : at + len(cell)] = cell
        made.append(barrier)
        return barrier.check, barrier.check

    inner = CODES[code]
    for _ in interleaved(getattr(inner, "__wrapped__", inner).__code__, prepare):
        view = made[-1]._view
        assert view.alive == (0, 1, 2) and view.incarnation(1) == 1
        assert sum(len(change.joined) for change in view.unreported) == 1
    assert len(made) > 10


def test_a_wait_can_be_seen_while_it_lasts():
    seen = []

    def live(rank, mine, transport):
        if rank == 1:
            until(transport, 0.8)
        transport.duties.append(lambda: mine.waiting and seen.append((rank, mine.waiting.what, *mine.waiting.ranks)))
        with mine.calling("its call"):
            mine.enter("a test")
        assert mine.waiting is None
        return transport.waited_s

    first, second = run(live)
    assert first > 0.5 > second, "the wait counts"
    assert set(seen) == {(0, "its call", 1)}


@pytest.mark.parametrize(("beat", "is_step"), [(Barrier.count_step, True), (Barrier.heartbeat, False)])
def test_who_gives_signs_of_life_is_waited_for(beat, is_step):
    """For 3 s, in which the deadline of 1 s would pass thrice. Of 300 signs few are published."""

    def live(rank, mine, transport):
        if rank == 1:
            put, puts = mine._window.put, []
            mine._window.put = lambda *cell: (puts.append(1), put(*cell))
            until(transport, 3.0, lambda: beat(mine))
            assert len(puts) < 200
        mine.enter("a test")
        return transport.clock(), mine.membership.words[1].steps

    times, steps = zip(*run(live, 3), strict=True)
    assert min(times) > 2.5 and any(steps) == is_step


@pytest.mark.parametrize("tolerant", [False, True])
def test_time_in_which_the_job_was_suspended_does_not_count(tolerant):
    """All ranks are stopped twice, for a hundred times the deadline, while one computes and the others wait for it."""

    def live(rank, mine, transport):
        transport.longest_poll_s = 0.05
        for _ in range(2) if rank == 2 else ():
            until(transport, transport.clock() + 0.4)
            transport._group._schedule.now += 100.0
        mine.enter("a test", patience_s=None if rank else 5.0)

    evicted = []
    run(live, 3, tolerant=tolerant, **({"evict": evicted.append} if tolerant else {}))
    assert evicted == []


def test_after_it_the_deadline_passes_all_the_same():
    def live(rank, mine, transport):
        transport.longest_poll_s = 0.05
        if rank == 1:
            until(transport, 0.4)
            transport._group._schedule.now += 100.0
            return
        with pytest.raises(DeadlinePassed, match=r"waiting for rank 1 \(last step 0, heard of 1\.\d s ago"):
            mine.enter("a test")
        assert 101.0 < transport.clock() < 101.2

    run(live)


@pytest.mark.parametrize("opens", [0, 1, 2])
def test_at_the_end_no_deadline_runs_against_who_has_closed_all(opens):
    """In the last meeting, and only there; who has closed one of two vectors has not."""
    what, is_final = ("another", False) if opens == 1 else ("the end", True)

    def live(rank, mine, transport):
        for _ in range(opens if rank == 1 else 0):
            mine.opened()
        mine.enter("a vector")
        if rank == 1:
            mine.closed() if opens else None
            until(transport, 1.7 if opens else 3)
        elif opens:
            with pytest.raises(DeadlinePassed, match=what):
                mine.enter(what, final=is_final)
        mine.enter(what, final=is_final)
        assert transport.clock() > 2.5 or opens

    run(live, 3, opens)


def test_a_rank_that_waits_says_so_and_for_whom():
    def live(rank, mine, transport):
        if rank == 2:
            until(transport, 0.5)
            mine._read([0])
            assert mine._awaited_by(0) == {2}
        mine.enter("a test")
        if rank == 2:  # it waits no more, and says so without another call
            until(transport, 0.6)
            mine._read([0])
            assert mine._awaited_by(0) == set()

    run(live, 3)


def test_the_lowest_that_waits_tells_whom_for():
    reports = []

    def live(rank, mine, transport):
        mine._report = lambda line: reports.append((rank, line))
        until(transport, 50 if rank == 3 else 0)
        mine.enter("malt.barrier")

    run(live, 4, deadline_s=300.0)
    assert [rank for rank, _ in reports] == [0, 0, 0]
    assert reports[0][1] == "malt: waiting for rank 3 in malt.barrier (10 s)"


def in_other_call(rank, calls, or_other="none"):
    """What a rank says that finds the other one in another call, whose name may be known no more."""
    found = f"^rank {rank} is in {calls[rank]} while rank {1 - rank} is in ({calls[1 - rank]}|{or_other})"
    return pytest.raises(MismatchedCalls, match=found)


@pytest.mark.parametrize("seed", range(5))
def test_different_meetings_are_told_apart_at_once(seed):
    """Also while a third rank is still on its way. They are called what they are part of."""

    def live(rank, mine, transport):
        mine.enter("the same")
        if rank == 2:
            until(transport, 1.0, mine.count_step)
            return transport.clock()
        calls = ["malt.barrier", "malt.finalize"]
        with mine.calls.calling(calls[rank]), mine.calls.calling("a part"), in_other_call(rank, calls):
            mine.enter("MPI_Allgatherv")
        return transport.clock()

    first, second, third = run(live, 3, seed, deadline_s=60.0)
    assert max(first, second) < third


@pytest.mark.parametrize(("following", "final", "options"), [
    ("malt.this", False, {}), ("malt.this", False, {"tolerant": True}), ("malt.finalize", True, {}),
    ("malt.finalize", True, {"tolerant": True}), ("malt.this", False, {"kind": GatheringBarrier}),
    (None, False, {"kind": GatheringBarrier}),
])  # fmt: skip
def test_a_rank_that_has_noticed_another_call_and_made_the_next_one_is_noticed(following, final, options):
    """Rank 0 looks only then. It took the data of one call for those of another, or waited for the end of rank 1."""
    ahead = []

    def live(rank, mine, transport):
        def call(what, final=False):
            return mine.enter(what, final=final) if following else mine.gather(what, b"")

        def there(looks):
            if "kind" in options:  # its Puts have not arrived by themselves
                mine._window.flush([0])
            ahead.append(1)

        if rank == 0:
            before_looks(mine, lambda looks: until_there(transport, ahead))
        with in_other_call(rank, ["malt.this", "malt.that"], "another call" if "kind" not in options else "none"):
            call("malt.that" if rank else "malt.this")
        if rank == 1:
            before_looks(mine, there)
        call(following or "malt.this", final)

    run(live, **options)


def test_a_rank_that_has_left_the_next_barrier_again_was_in_this_one():
    """Rank 1 looks only then: it was suspended. It took the name of the next call for that of this one."""
    ahead, left = [], []

    def live(rank, mine, transport):
        if rank == 1:
            before_looks(mine, lambda looks: until_there(transport, ahead))
        mine.enter("malt.this")
        left.append(rank)
        if rank == 0:
            with pytest.raises(DeadlinePassed):
                mine.enter("malt.that", patience_s=0.1)
            mine._publish()
            ahead.append(1)
            while 1 not in left:
                transport.pause(1)
        mine.enter("malt.that")

    run(live)


class Preempted(Exception):
    """What a handler of the program's own raises."""


@pytest.mark.parametrize("error", [KeyboardInterrupt, Preempted])
@pytest.mark.parametrize("again", ["malt.this", "malt.that"])
@pytest.mark.parametrize("until_s", [0.0, 1.0])
def test_an_interrupted_barrier_is_entered_again_by_the_next_call(until_s, again, error):
    """A signal comes in a wait for rank 1, which makes one call. The next one of rank 0 was the one after that.

    Rank 0 does something else before that. Rank 1, which comes meanwhile, waits for it.
    """

    def interrupted(looks):
        if looks == 3 and error is Preempted:
            raise Preempted
        if looks == 3:
            interrupt()

    def live(rank, mine, transport):
        mine.enter("malt.first")
        if rank == 1:
            until(transport, 0.5)
        else:
            before_looks(mine, interrupted)
            with pytest.raises(error):
                mine.enter("malt.this")
            until(transport, until_s)
        mine.enter(again)
        return mine.next_number, transport.clock() >= until_s

    assert run(live, deadline_s=60.0) == [(3, True)] * 2


def test_a_barrier_that_all_enter_as_a_signal_comes_has_taken_place():
    """Rank 1 left it. Rank 0 was out of it, and its next call was over without rank 1, which had not made it."""
    left = []

    def live(rank, mine, transport):
        pause = transport.pause

        def interrupted(polls):
            while not left:
                pause(polls)
            interrupt()
            transport.pause = pause

        if rank == 0:
            transport.pause = interrupted
            with pytest.raises(KeyboardInterrupt):
                mine.enter("malt.this")
        else:
            until(transport, 0.1)
            mine.enter("malt.this")
            left.append(1)
            until(transport, 0.5)
        mine.enter("malt.this")
        return mine.next_number, transport.clock() >= 0.5

    assert run(live, deadline_s=60.0) == [(3, True)] * 2


def test_patience_ends_before_the_deadline_and_who_is_missing_is_named_with_its_steps():
    def live(rank, mine, transport):
        if rank == 1:
            for _ in range(7):
                mine.count_step()
            until(transport, 1.0)
            mine.count_step()  # long after the last report; it is reported again
            return
        for patience_s in (0.1, 3.0):
            with pytest.raises(DeadlinePassed) as caught:
                mine.enter("a test", patience_s)
            assert patience_s == 3.0 or 0.1 < transport.clock() < 0.5
        assert caught.value.missing == {1: 8}

    run(live)


def test_what_the_dead_said_last_is_taken_down():
    """A rank that is marked failed on another's word may have entered a barrier since this rank looked."""

    def live(rank, mine, transport):
        if rank == 1:
            mine.membership.enter(0)
            mine._publish()
        transport.barrier()
        if rank == 0:
            assert mine.membership.words[1].entered == 0
            mine._mark_failed(0b10, Generation())
            assert mine.membership.words[1].entered == 1
            assert transport.view.failed == {1}

    run(live, 3, tolerant=True)


@pytest.mark.parametrize("seed", range(10))
def test_a_meeting_that_needs_who_has_departed_ends_at_once(seed):
    def live(rank, mine, transport):
        mine.enter("a test")
        if rank == 2:
            mine.depart()
            mine.depart()
            with pytest.raises(ClosedError, match="another: this rank has departed"):
                mine.enter("another")
            return
        for call in ("another", "a third", "a fourth"):
            with pytest.raises(PeerLost, match=f"rank 2 is lost: it has departed, and {call} needs it") as raised:
                mine.enter(call)
            assert raised.value.rank == 2
        assert transport.clock() < 1

    run(live, 4, seed, deadline_s=300.0)


@pytest.mark.parametrize("seed", range(10))
def test_who_departs_out_of_a_meeting_has_not_come_to_it(seed):
    """Nobody must enter MPI's own collective call without it."""

    def interrupted(looks):
        if looks == 3:
            raise Preempted

    def live(rank, mine, transport):
        if rank == 2:
            before_looks(mine, interrupted)
            with pytest.raises(Preempted):
                mine.enter("a test")
            mine.depart()
            return
        while rank == 1 and not getattr(mine.word(2), "flags", 0) & DEPARTED:
            transport.pause(10)
        with pytest.raises(PeerLost):
            mine.enter("a test")

    run(live, 3, seed, deadline_s=300.0)


@pytest.mark.parametrize("seed", range(2))
def test_a_barrier_is_left_when_the_words_of_all_have_come(seed):
    """Rank 1 knows rank 0's decision before it has the word of rank 2, which comes over a longer way."""

    def live(rank, mine, transport):
        put, late = mine._window.put, []
        if rank == 2:
            mine._window.put = lambda source, peer, offset: (
                late.append((source.copy(), offset)) if peer == 1 else put(source, peer, offset)
            )
        mine.opened()
        mine.enter("a test")
        if rank == 2:
            for _ in range(50):
                transport.pause(0)
            for source, offset in late:
                put(source, 1, offset)
            mine._window.flush([1])
        assert not any(mine.has_closed(other) for other in mine._others)

    run(live, 3, seed, tolerant=True)


def test_an_eviction_is_of_one_incarnation():
    """Rank 2 evicted rank 1, and failed. Rank 1 has come back: if it fails again, nobody has evicted it."""
    mine = alone(3)
    mine.membership.words[2] = Word(evicted=0b10)
    mine._view.change(failed=[1, 2])
    assert mine.was_evicted(1)
    mine.follow(Word(generation=Generation(1, 1, 1)))
    assert not mine.was_evicted(1)
    mine.membership.words[2] = Word(evicted=0b10, generation=Generation(1, 1, 1))
    assert mine.was_evicted(1)


def test_who_is_judged_is_evicted_and_not_its_next_incarnation():
    """Another thread may admit that one."""
    evicted = []
    mine = alone(2, evict=lambda rank: evicted.append(mine._view.member(rank)) or True)

    def admit():
        with mine._publishing:
            mine._lose(0b10)
            mine.follow(Word(generation=Generation(1, 1, 1)))

    other = threading.Thread(target=admit)

    def judge(*_):
        other.start()
        other.join(0.2)
        return WaitState(True, frozenset([1]))

    wait = SimpleNamespace(ranks=[1], final=False, report=lambda *_: None, judge=judge)
    assert not mine.poll_wait(wait)
    other.join(60)
    assert evicted == [Member(1, 0)] and mine._evicted_at == {}


@pytest.mark.parametrize("tolerant", [False, True])
def test_two_calls_of_which_one_is_the_last(tolerant):
    """Where ranks fail alone, the rank that has finished ends, and the others wait for that. Else all are told."""

    def live(rank, mine, transport):
        waits = tolerant and rank == 1
        with pytest.raises(DeadlinePassed if waits else MismatchedCalls):
            mine.enter("malt.finalize" if rank == 0 else "malt.barrier", final=rank == 0)
        assert (transport.clock() > 0.9) == waits

    run(live, tolerant=tolerant)


@pytest.mark.parametrize(("kind", "tolerant"), [(Barrier, False), (Barrier, True), (GatheringBarrier, False)])
@pytest.mark.parametrize("schedule", range(6))
def test_a_rank_that_lacks_others_has_seen_nothing_from_after_the_barrier(schedule, kind, tolerant):
    """A rank may leave a barrier, and put something, before this one has the word of one that has entered it."""

    def live(rank, mine, transport):
        window = transport.window(8 * 3)
        seen = window.memory.view(np.int64)
        lacked = []

        def look():
            window.sync()
            newest = int(seen.max())
            if mine.lacks_ranks:
                lacked.append(newest)
                assert newest < mine.next_number - 1

        transport.duties.append(look)
        for number in range(1, 30):
            mine.enter("barrier")
            assert not mine.lacks_ranks
            mine.tell_left()
            for peer in {0, 1, 2} - {rank}:
                window.put(np.array([number]).view(np.uint8), peer, 8 * rank)
            window.flush([0, 1, 2])
        transport.duties.remove(look)
        mine.enter("end")
        return lacked

    assert any(run(live, 3, seed=schedule, kind=kind, tolerant=tolerant))
