"""How often ranks exchange: costs in, interval out."""

from itertools import pairwise

import numpy as np
import pytest

from malt.session.replica.interval import CAP_S, IN_AN_EPOCH, TIMES, TIMES_ALONE, Interval, Traffic

ROW_S = 1e-7
"""What a row of the SVM takes."""


def train(interval, exchanges, held_s, count_s=ROW_S, link_s=0.0):
    """The intervals of a loop whose counts take `count_s`, whose exchanges take held_s(number).

    Between exchanges a message of two to another host leaves in `link_s`. The newer one takes its place until then.
    """
    held_s = held_s if callable(held_s) else lambda number, held_s=held_s: held_s
    found, now, is_waiting, left_at = [], 0.0, False, 0.0
    for number in range(exchanges):
        counts = interval.counts
        now += counts * count_s
        if is_waiting and left_at <= now:  # the link was free meanwhile, and has begun with what waited
            is_waiting, left_at = False, left_at + link_s
        superseded = int(is_waiting)
        if left_at <= now:
            left_at, is_waiting = now + link_s, False
        else:
            is_waiting = True
        traffic = Traffic(1, superseded) if link_s else Traffic()
        found.append(interval.note(counts, counts * count_s, held_s(number), traffic))
        now += held_s(number)
    return found


@pytest.mark.parametrize("held_s", [25e-6, 0.5e-3, 13e-3])
def test_an_exchange_costs_a_tenth_of_what_is_trained_between_two(held_s):
    found = train(Interval(), 60, held_s)
    assert found[-1] == pytest.approx(TIMES * held_s / ROW_S, rel=0.01)
    assert all(after <= 2 * before for before, after in pairwise([1, *found]))


def test_a_cheap_exchange_beside_a_long_step_is_made_at_each_step():
    assert set(train(Interval(), 30, 50e-6, count_s=5e-3)) == {1}


def test_it_follows_costs_that_rise_and_fall():
    found = train(Interval(), 90, lambda number: 1e-3 if 30 <= number < 60 else 50e-6)
    few, many = TIMES * 50e-6 / ROW_S, TIMES * 1e-3 / ROW_S
    assert [found[29], found[59], found[89]] == pytest.approx([few, many, few], rel=0.01)
    assert all(before // 2 <= after <= 2 * before for before, after in pairwise(found))


def test_one_long_exchange_or_pause_changes_nothing():
    usual, odd = Interval(), Interval()
    train(usual, 30, 1e-3)
    train(odd, 30, 1e-3)
    for trained_s, held_s in ((20.0, 1e-3), (odd.counts * ROW_S, 0.3)):  # an evaluation; a wait
        odd.note(odd.counts, trained_s, held_s)
        assert odd.counts == pytest.approx(usual.counts, rel=0.01)


def test_costs_that_vary_as_on_busy_cores_leave_it_steady():
    random = np.random.default_rng(0)
    held_s = np.where(random.random(400) < 0.2, 4e-3, 50e-6 * random.uniform(0.8, 1.3, 400))  # a time slice of others
    found = train(Interval(), 400, lambda number: float(held_s[number]))[20:]
    assert 0.7 < np.median(found) / (TIMES * 50e-6 / ROW_S) < 1.3


@pytest.mark.parametrize("link_s", [0.02, 3.0])
def test_a_slow_link_lengthens_it_until_messages_leave(link_s):
    found = train(Interval(), 400, 50e-6, link_s=link_s)[100:]
    assert 0.7 * link_s < np.median(found) * ROW_S < 1.5 * link_s, "beyond CAP_S, too"


def test_a_link_that_is_fast_again_is_noticed():
    interval = Interval()
    slow, fast = train(interval, 200, 50e-6, link_s=0.02)[-1], train(interval, 200, 50e-6, link_s=1e-5)[-1]
    assert fast == pytest.approx(TIMES * 50e-6 / ROW_S, rel=0.01) and slow > 10 * fast


@pytest.mark.parametrize("off_core_s", [2e-3, 30e-3])
def test_time_without_a_core_is_a_cost_while_a_message_is_on_its_way(off_core_s):
    """A message is on its way for 10 ms, in which the loop has no core for up to as long."""
    interval, count_s = Interval(), 1e-4
    for _ in range(60):
        interval.note(interval.counts, interval.counts * count_s, 50e-6, Traffic(1, 0, 10e-3, off_core_s))
    assert interval.counts == pytest.approx((TIMES * 50e-6 + 10 * min(off_core_s, 10e-3)) / count_s, rel=0.01)


def test_few_superseded_messages_are_no_reason():
    interval = Interval()
    for number in range(60):
        interval.note(interval.counts, interval.counts * ROW_S, 50e-6, Traffic(16, int(number % 3 == 0)))
    assert interval.counts == pytest.approx(TIMES * 50e-6 / ROW_S, rel=0.01)


def test_bounds():
    assert train(Interval(100, 800), 30, 1e-3)[-1] == 800
    assert set(train(Interval(100, 800), 30, 0.0)) == {100}
    assert set(train(Interval(50, 50), 30, 1e-3)) == {50}


def test_an_epoch_has_some_exchanges_at_least():
    assert train(Interval(epoch=11_245), 30, 1e-3)[-1] == 11_245 // IN_AN_EPOCH
    assert train(Interval(high=500, epoch=11_245), 30, 1e-3)[-1] == 500
    assert train(Interval(low=5000, epoch=11_245), 30, 1e-3)[-1] == 5000, "what the user has said counts"
    assert set(train(Interval(epoch=3), 30, 1e-3)) == {1}


def test_without_an_epoch_there_is_a_cap_in_seconds():
    assert train(Interval(), 60, 0.4, count_s=1e-3)[-1] == round(CAP_S / 1e-3)
    assert train(Interval(epoch=10**6), 60, 0.4, count_s=1e-3)[-1] == round(TIMES * 0.4 / 1e-3)


def test_the_wish_is_known_before_the_interval_has_grown():
    interval = Interval()
    train(interval, 7, 13e-3)
    assert interval.wish == pytest.approx(TIMES * 13e-3 / ROW_S, rel=0.01) and interval.counts <= 2**7


def test_a_clock_that_stands_still():
    interval = Interval()
    for _ in range(5):
        interval.note(interval.counts, 0.0, 0.0)
    assert interval.counts == 1


def test_one_rank_exchanges_less_often():
    """It exchanges with nobody."""
    alone, one_of_many = Interval(times=TIMES_ALONE), Interval()
    for _ in range(20):
        for interval in (alone, one_of_many):
            interval.note(interval.counts, 1e-4 * interval.counts, 1e-4)
    assert (alone.counts, one_of_many.counts) == (TIMES_ALONE, TIMES)
