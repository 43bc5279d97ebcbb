"""Barriers over MPI: what ranks pass on as they enter, and Puts that nobody waits for."""

from functools import partial

import barriers
import numpy as np
import pytest
from barriers import before_looks, interrupt, until, until_there

from dstorm import DeadlinePassed, PeerLost
from dstorm.membership import letters
from dstorm.membership.barriers.gathering import GatheringBarrier, entries

pytestmark = pytest.mark.serial
run = partial(barriers.run, kind=GatheringBarrier)


def data_of(rank, number):
    """Of any length, also longer than a letter."""
    return bytes([rank]) * (number * (rank + 1) * 37 % (letters.MOST + 40))


@pytest.mark.parametrize("seed", range(12))
def test_all_get_the_letters_of_all(seed):
    """Ranks are up to two barriers apart in time; Puts arrive in pieces, and late."""

    def live(rank, mine, transport):
        mine.leaves_puts = seed % 4 > 0
        for number in range(1, 9):
            transport.pause((rank + seed) * number % 5)
            if number % 3 == 0:
                mine.enter("a test")
            mine.heartbeat()
            if number % 2:
                mine._publish()  # as from another thread
            found, _ = mine.gather("a test", data_of(rank, number))
            assert [one.length for one in found] == [len(data_of(other, number)) for other in range(3)]
            assert [one.data for one in found] == [data_of(other, number)[: letters.MOST] for other in range(3)]

    run(live, 3, seed)


@pytest.mark.parametrize("number", [1, 2])
def test_a_heartbeat_just_before_a_barrier_leaves_the_last_letter_as_it_is(number):
    """Rank 1 reads it only then: it is late in the barrier that rank 0 has left."""
    heard = []

    def live(rank, mine, transport):
        enter = mine._enter

        def early(*arguments, **options):
            mine._publish()
            heard.append(1)
            return enter(*arguments, **options)

        for _ in range(1, number):
            mine.enter("a test")
        if rank == 0:
            mine.gather("a test", b"first")
            mine._enter = early
            mine.gather("a test", b"second")
        else:
            before_looks(mine, lambda looks: until_there(transport, heard))
            assert mine.gather("a test", b"")[0][0].data == b"first"
            assert mine.gather("a test", b"")[0][0].data == b"second"

    run(live)


def test_a_cell_that_comes_before_its_letter_is_not_enough():
    """Rank 1 has looked at the cell of rank 0 when the letter comes."""
    looks = []

    def live(rank, mine, transport):
        put, rest = mine._window.put, []

        def cell_alone(source, peer, offset):
            end = mine._cells.nbytes
            put(source[:end].copy(), peer, offset)
            rest.append((source[end:].copy(), peer, offset + end))

        def letter(_):
            mine._window.flush([1])
            while len(looks) < 9:
                transport.pause(1)
            while rest:
                put(*rest.pop())

        if rank == 0:
            mine._window.put = cell_alone
        before_looks(mine, looks.append if rank else letter)
        assert [one.data for one in mine.gather("a test", b"ab")[0]] == [b"ab", b"ab"]

    run(live)


def test_a_letter_that_is_not_whole_is_not_read():
    memory, data = np.zeros(letters.ROOM + 64, np.uint8), b"some bytes"
    source = letters.written(7, data)
    memory[64 : 64 + len(source)] = source
    assert letters.read(memory, 64, 7) == (len(data), data)
    assert letters.read(memory, 64, 9) is None
    for place in range(64, 64 + len(source)):
        memory[place] ^= 1
        assert letters.read(memory, 64, 7) is None
        memory[place] ^= 1


@pytest.mark.parametrize("seed", range(8))
def test_all_know_whether_any_has_marked_a_barrier(seed):
    marks = np.random.default_rng(seed).random((12, 3)) < 0.3

    def live(rank, mine, transport):
        for mine_marked, all_marked in zip(marks[:, rank], marks.any(1), strict=True):
            transport.pause((rank * 5 + seed) % 4)
            mine.enter("a test", mark=mine_marked)
            for _ in range(rank * seed % 5):  # others may have entered the next one meanwhile
                transport.pause(3)
            assert mine.is_marked == all_marked

    run(live, 3, seed)


@pytest.mark.parametrize("first", [False, True])
def test_a_barrier_that_is_entered_again_keeps_its_mark(first):
    """The other rank may have left it, and has read the mark."""

    def live(rank, mine, transport):
        if rank == 1:
            until(transport, 2.0)
            mine.enter("a test")
        else:
            with pytest.raises(DeadlinePassed):
                mine.enter("a test", mark=first)
            mine.enter("a test", mark=not first)
        assert mine.is_marked == first
        mine.enter("another", mark=rank == 0)
        assert mine.is_marked

    run(live)


@pytest.mark.parametrize("count", [1, 2])
def test_a_rank_that_withdraws_from_a_barrier_has_not_entered_it(count):
    """Its older word, in its other cell, says that it has. Then it has no heartbeat, and departs."""

    def live(rank, mine, transport):
        for _ in range(count):
            mine.enter("a test")
        if rank == 0:
            with pytest.raises(DeadlinePassed):
                mine.enter("another", patience_s=0.1)
            mine.depart()
        else:
            until(transport, 0.5)
            mine.check()
            assert mine.membership.words[0].entered == count
            with pytest.raises(PeerLost, match="departed"):
                mine.enter("another")

    run(live)


@pytest.mark.parametrize("second", [b"second", b"x" * 999])
def test_what_is_passed_on_once_more_is_what_was_passed_on_first(second):
    """Rank 1 has got that, and has left."""

    def live(rank, mine, transport):
        if rank == 0:
            with pytest.raises(DeadlinePassed):
                mine.gather("a test", b"first")
            until(transport, 2.5, mine.count_step)
        else:
            until(transport, 1.5)
        found, own = mine.gather("a test", second if rank == 0 else b"own")
        again, _ = mine.gather("a test", second)
        return [one.data for one in found], own, again[0].length

    found, alike = run(live), [b"first", b"own"]
    assert found == [(alike, b"first", len(second)), (alike, b"own", len(second))]


@pytest.mark.parametrize(("error", "again"), [(DeadlinePassed, "malt.that"), (KeyboardInterrupt, "malt.this")])
def test_a_letter_is_that_of_the_call_which_all_make(error, again):
    """Rank 1, which makes that call alone, got what rank 0 had for the one before."""
    comes_at = 1.5 if error is DeadlinePassed else 0.5

    def live(rank, mine, transport):
        if rank == 1:
            until(transport, comes_at)
        else:
            before_looks(mine, lambda looks: interrupt() if looks == 3 and error is KeyboardInterrupt else None)
            with pytest.raises(error):
                mine.gather("malt.this", b"first")
        found, own = mine.gather(again, b"second")
        return [one.data for one in found], own

    assert run(live) == [([b"second", b"second"], b"second")] * 2


def test_a_rank_that_enters_once_more_under_another_name_is_in_that_call():
    def live(rank, mine, transport):
        mine.enter("a test")
        for number, name in enumerate(("a call", "a second call")):
            if rank == 0:
                with pytest.raises(DeadlinePassed):
                    mine.enter(name, patience_s=0.2)
                mine._window.flush([1])
            until(transport, 0.3 + number)
            mine.check()
            assert rank == 0 or mine.name_of(0) == name
            until(transport, 1)

    run(live, deadline_s=300.0)


def test_large_worlds_take_fewer_cells():
    assert [entries(size) for size in (2, 64, 128, 512, 4096)] == [16, 16, 8, 2, 2]


class Ordered:
    """A window in which no Put goes to bytes to which another one of this rank is under way."""

    def __init__(self, window, transport):
        self._window, self._pending, self.flushes = window, lambda: transport._group.pending[transport.rank], 0

    def __getattr__(self, name):
        return getattr(self._window, name)

    def put(self, source, peer, offset):
        target = self._window._parts[peer][offset : offset + source.nbytes]
        assert not any(np.may_share_memory(target, under_way) for _, _, under_way in self._pending())
        self._window.put(source, peer, offset)

    def flush(self, peers):
        self._window.flush(peers)
        self.flushes += 1


@pytest.mark.parametrize("seed", range(12))
def test_no_put_overtakes_another(seed):
    """A rank waits for one only where the receiver may not have seen it, and once in a while for all."""

    def live(rank, mine, transport):
        mine._publish()
        window = mine._window = Ordered(mine._window, transport)
        for number in range(3 * entries(3)):
            transport.pause((rank + seed) * number % 4)
            mine.enter("a test")
        assert mine.word(1 - min(rank, 1)).entered >= 3 * entries(3)
        flushes = window.flushes
        mine._publish()
        mine._publish()
        mine.enter("the end", final=True)
        assert window.flushes - flushes == 3
        return flushes

    assert run(live, 3, seed) == [2] * 3


def test_the_last_barrier_and_ranks_without_help_wait_for_their_puts():
    def live(rank, mine, transport):
        window = mine._window = Ordered(mine._window, transport)
        counts = []
        for leaves, final in ((True, False), (False, False), (True, True)):
            mine.leaves_puts = leaves
            mine.enter("a test", final=final)
            counts.append(window.flushes)
        return counts

    assert run(live) == [[0, 1, 2]] * 2
