"""What the counters say."""

import pytest

from dstorm.queues.statistics import Lag, LagCounter


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([], Lag()),
        ([3], Lag(1, 3, 3.0, 3, 3)),
        ([3, 5, 1], Lag(3, 1, 3.0, 5, 1)),
        ([-3], Lag(1, -3, -3.0, -3, -3)),
        ([-3, -5, -1], Lag(3, -5, -3.0, -1, -1)),
    ],
)
def test_lags_are_counted(lags, expected):
    counter = LagCounter()
    for lag in lags:
        counter.note(lag)
    assert counter.record() == expected
