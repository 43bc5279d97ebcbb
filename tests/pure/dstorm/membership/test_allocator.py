"""The parts of an arena: where they lie, against a twin that marks every page."""

import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from interleaved import interleaved

from dstorm.membership.arena.allocator import Allocator
from dstorm.membership.resilient import SurvivingTransport

pytestmark = pytest.mark.serial
PAGE = 4096


@given(st.integers(0, 40), st.integers(0, PAGE - 1), st.lists(st.integers(-20, 12 * PAGE), max_size=60))
def test_no_two_parts_overlap_and_what_fits_is_found(pages, rest, acts):
    """`acts`: a length to take, or, below 0, which of the parts that are taken is given back."""
    rooms = Allocator(pages * PAGE + rest), Allocator(pages * PAGE + rest)
    free, taken = [True] * pages, {}
    for act in acts:
        if act < 0:
            if taken:
                start = sorted(taken)[act % len(taken)]
                for page in taken.pop(start):
                    free[page] = True
                for room in rooms:
                    room.give_back(start)
            continue
        gaps = [len(gap) for gap in "".join("-x"[not one] for one in free).split("x") if gap]
        wanted = max(-(-act // PAGE), 1)
        assert rooms[0].longest == max(gaps, default=0) * PAGE
        if wanted > max(gaps, default=0):
            for room in rooms:
                with pytest.raises(MemoryError, match="are left in one piece"):
                    room.take(act)
            continue
        start, same = (room.take(act) for room in rooms)
        assert start == same and not start % PAGE
        taken[start] = range(start // PAGE, start // PAGE + wanted)
        assert all(free[page] for page in taken[start])
        for page in taken[start]:
            free[page] = False
    assert all(0 <= part.start < part.stop <= pages for part in taken.values())


def test_the_shortest_gap_that_holds_it():
    room = Allocator(12 * PAGE)
    first, second, third, fourth = (room.take(pages * PAGE) for pages in (4, 1, 2, 1))
    room.give_back(first)
    room.give_back(third)
    assert room.take(2 * PAGE - 1) == third
    assert room.take(3 * PAGE) == first
    room.give_back(second)
    room.give_back(fourth)
    assert room.take(2 * PAGE) == 3 * PAGE, "neighbours are one gap"


def test_what_is_given_back_is_not_given_back_twice():
    room = Allocator(PAGE)
    start = room.take(0)
    assert room.longest == 0
    room.give_back(start)
    with pytest.raises(KeyError):
        room.give_back(start)


def test_two_threads_are_lent_different_parts():
    lent = []

    def prepare():
        lent.append([])
        arena = SimpleNamespace(memory=bytes(8 * PAGE))
        transport = SimpleNamespace(_allocator=Allocator(8 * PAGE), _lending=threading.Lock(), _arena=arena)
        mine = lent[-1]
        return (lambda: mine.append(SurvivingTransport.lend(transport, PAGE)[0]),) * 2

    places = list(interleaved(Allocator.lend.__code__, prepare))
    assert len(places) > 10 and all(len(set(parts)) == len(parts) for parts in lent)
