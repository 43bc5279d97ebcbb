"""Waits: when there is no hope, who is to blame, what is said."""

import pytest

from dstorm.waits.wait import Wait, WaitState

ON, OVER = WaitState(False, frozenset()), WaitState(True, frozenset())


def judge(ranks, heard, awaited=None, *, now=101.0, **options):
    """Of rank 0, which waits for `ranks` since 0, where the deadline is 100; `heard`: when, by rank."""
    wait = Wait(0, 8, "a test", 0.0, 100.0, **options)
    wait.ranks = ranks
    return wait.judge(now, lambda rank: heard.get(rank, 0.0), lambda rank: (awaited or {}).get(rank, ()))


def blamed(*ranks):
    return WaitState(True, frozenset(ranks))


@pytest.mark.parametrize(
    ("ranks", "heard", "awaited", "decision"),
    [
        ([1], {}, {}, blamed(1)),
        ([1], {1: 1.5}, {}, ON),
        ([1], {}, {1: [2]}, blamed(2)),
        ([1], {2: 50}, {1: [2]}, ON),
        ([1], {4: 50}, {1: [2, 3], 2: [4]}, blamed(3)),
        ([1], {}, {1: [0]}, OVER),
        ([1], {}, {1: [2], 2: [0, 1]}, OVER),
        ([1], {1: 50}, {1: [0]}, ON),
        ([1, 2], {2: 50}, {}, blamed(1)),
    ],
    ids=["silent", "heard", "holds up", "waits for one at work", "one of two", "circle", "circle of 3", "young", "any"],
)
def test_who_is_waited_for_in_the_end_is_to_blame(ranks, heard, awaited, decision):
    assert judge(ranks, heard, awaited) == decision


def test_a_patient_wait_ends_when_nobody_awaited_is_heard():
    assert judge([1, 2], {2: 50}, patient=True) == WaitState(False, frozenset({1}))  # who may be evicted meanwhile
    assert judge([1, 2], {}, patient=True) == blamed(1, 2)


def test_the_deadline_begins_with_the_wait():
    wait = Wait(0, 2, "a test", 500.0, 100.0)
    wait.ranks = [1]
    assert wait.judge(599.0, lambda rank: 0.0, lambda rank: ()) == ON
    assert wait.judge(601.0, lambda rank: 0.0, lambda rank: ()) == blamed(1)
    wait.heard = {1: 550.0}  # a step that the call has seen itself
    assert wait.judge(601.0, lambda rank: 0.0, lambda rank: ()) == ON


def test_no_deadline_runs_against_who_is_spared():
    wait = Wait(0, 3, "a test", 0.0, 100.0, patient=True)
    wait.ranks, wait.spared = [1, 2], [1]
    assert wait.judge(101.0, lambda rank: 0.0, lambda rank: ()) == blamed(2)
    wait.spared = [1, 2]
    assert wait.judge(1e9, lambda rank: 0.0, lambda rank: ()) == ON


def reports(rank, waits, until=100):
    """(when, what) rank `rank` says, looking twice a second; `waits(now)`: whom each rank waits for."""
    wait = Wait(rank, 4, "malt.barrier", 0.0, 300.0)
    wait.ranks = [3]
    lines = [
        (now / 2, wait.report(now / 2, lambda other, at=now / 2: waits(at).get(other, ()))) for now in range(until * 2)
    ]
    return [(now, line) for now, line in lines if line is not None]


def test_the_lowest_who_waits_says_so_after_10_s_and_then_at_doubling_intervals():
    lines = reports(1, lambda now: {1: [3], 2: [3]})
    assert [now for now, _ in lines] == [10, 20, 40, 80]
    assert lines[1][1] == "malt: waiting for rank 3 in malt.barrier (20 s)"
    assert reports(2, lambda now: {1: [3], 2: [3]}) == []


def test_who_left_the_word_to_a_lower_one_takes_it_when_that_goes_on():
    lines = reports(2, lambda now: {1: [3]} if now < 25 else {})
    assert [now for now, _ in lines] == [25, 40, 80]


def test_a_line_names_whom_the_awaited_wait_for_and_not_too_many():
    wait = Wait(0, 30, "gather", 0.0, 300.0)
    wait.ranks = [1, 2]
    waits = {1: [0, 5, 6]}
    line = wait.report(11.0, lambda rank: waits.get(rank, ()))
    assert line == "malt: waiting for ranks 1 and 2 in gather (11 s); rank 1 waits for ranks 5 and 6"
    wait.ranks = range(1, 21)
    line = wait.report(22.0, lambda rank: ())
    assert line == "malt: waiting for ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more in gather (22 s)"


def test_how_often_a_wait_is_looked_after():
    wait = Wait(0, 2, "a test", 0.0, 1.0)
    assert [wait.is_due(now / 100) for now in (4, 6, 8, 12)] == [False, True, False, True]
