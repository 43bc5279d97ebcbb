"""Counts, ranks, times and values, as the view, the reports, the launcher and errors show them."""

import numpy as np

from dstorm.words import count, duration, named, shown


def test_one_of_a_thing_is_no_plural():
    assert [count(number, "rank") for number in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]


def test_few_ranks_are_named():
    assert [named(range(ranks)) for ranks in (1, 2)] == ["rank 0", "ranks 0, 1"]
    assert named(range(9)) == "ranks 0, 1, 2, 3, 4, 5 and 3 more"


def test_times_are_as_exact_as_they_need_be():
    shown = [duration(seconds) for seconds in (0, 0.25, 2.5, 12.4, 185, 3750)]
    assert shown == ["0 s", "0.2 s", "2.5 s", "12 s", "3:05", "1:02:30"]


def test_a_value_is_shown_in_one_short_line():
    """An array or a list in place of a number, which users pass by mistake, may have millions of elements."""
    assert [shown(one) for one in (3, "a  b", [1, 2], None)] == ["3", "'a  b'", "[1, 2]", "None"]
    assert shown(np.zeros((2, 2))) == "array([[0., 0.], [0., 0.]])"
    assert shown(list(range(10**5))).startswith("[0, 1, 2, ") and len(shown(list(range(10**5)))) == 103
