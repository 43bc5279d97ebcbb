"""How long a rank yields its core: longer where others take it, hardly where nobody does."""

import pytest

from dstorm.queues.waits.patience import Patience


def yielded(lasts_s, nap_s=2e-4, first_s=()):
    """The seconds until the patience is used up, and the polls of the pauses. The first pause needs none.

    A yield lasts `lasts_s`; the first ones as long as `first_s` says.
    """
    patience, now, pauses = Patience(), 0.0, []

    def pause(polls):
        nonlocal now
        now += nap_s if polls else first_s[len(pauses)] if len(pauses) < len(first_s) else lasts_s
        pauses.append(polls)

    while not pauses or patience.is_left:
        patience.pause(pause, lambda: now)
    return now, pauses


def test_a_core_that_others_take_is_given_away_for_half_a_second():
    seconds, pauses = yielded(4e-3)
    assert 0.5 <= seconds < 0.51 and not any(pauses)


def test_a_nap_that_ends_late_has_given_the_core_away():
    assert yielded(1e-6, nap_s=4e-3, first_s=[4e-3])[0] >= 0.5


def test_a_slow_peer_does_not_hold_this_rank_up():
    assert yielded(1e-6) == (1e-6, [0])


def test_a_rank_whose_core_others_take_is_not_held_up_in_vain_so_soon():
    """They may be on the core that the peer waits for, too. It is then no slow peer."""
    seconds, pauses = yielded(1e-6, first_s=[4e-3] * 20)
    assert 0.08 + 0.02 <= seconds < 0.08 + 0.021 and any(pauses[20:])


@pytest.mark.parametrize("step_s, is_left", [(5e-4, True), (3e-3, False)])
def test_only_steps_that_are_short_beside_a_time_slice_are_held_up(step_s, is_left):
    patience, now = Patience(), 0.0
    for step, waited_s in ((2, 0.0), (5, 0.0), (7, 0.008), (8, 0.0)):  # the rank itself may have waited for its core
        now += 3 * step_s + waited_s
        patience.arrive(now, step)
        patience.leave(now)
    clock = iter((now, now + 4e-3, now + 4e-3))
    patience.pause(lambda polls: None, lambda: next(clock))  # others take the core
    assert patience.is_left == is_left


def test_a_second_gather_of_a_step_is_no_step():
    patience = Patience()
    for step in range(1, 10):
        for now in (step, step + 1e-6):
            patience.arrive(now, step)
            patience.leave(now)
    clock = iter((10.0, 10.004, 10.004))
    patience.pause(lambda polls: None, lambda: next(clock))
    assert not patience.is_left
