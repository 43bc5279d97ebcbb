"""How often a loop reads the clock."""

from itertools import pairwise

import pytest

from malt.session.replica.heartbeat_interval import HeartbeatInterval


def readings(pace, until):
    """The times at which a loop reads the clock, if its step at time t takes pace(t)."""
    now, left, found = 0.0, 1, [0.0]
    interval = HeartbeatInterval(now)
    while now < until:
        now += pace(now)
        left -= 1
        if not left:
            left = interval.steps(now)
            found.append(now)
    return found


@pytest.mark.parametrize("step_s", [1e-7, 1e-4, 1e-3, 0.2, 30.0])
def test_the_clock_is_read_rarely_and_often_enough(step_s):
    found = readings(lambda now: step_s, 500 * step_s)
    gaps = [later - earlier for earlier, later in pairwise(found)]
    assert max(gaps) <= max(64 * step_s, 2e-3) and max(gaps[20:], default=0) < max(3e-3, 1.5 * step_s)
    if step_s < 1e-5:
        assert len(found) < 500 / 30


def test_a_loop_that_slows_down_is_noticed():
    found = readings(lambda now: 1e-6 if now < 1 else 1.0, 300)
    assert max(later - earlier for earlier, later in pairwise(found)) <= 64
    assert len([now for now in found if now > 100]) >= 200
