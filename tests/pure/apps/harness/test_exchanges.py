"""Where exchanges of a program fall: whether ranks have made as many at the end of an epoch."""

import itertools

import pytest

from apps import harness


def made(count, epochs, every, at_ends):
    """The exchanges of a rank, counted one by one."""
    done, last, total = 0, 0, 0
    for _ in range(epochs):
        for _ in range(count):
            done += 1
            if done % every == 0:
                total, last = total + 1, done
        if at_ends and last < done:
            total, last = total + 1, done
    return total


@pytest.mark.parametrize("at_ends", [False, True])
def test_ranks_have_made_as_many_exchanges(at_ends):
    all_counts, all_epochs, all_intervals = [(0, 1), (2, 3), (3, 3), (9, 10), (40, 41)], range(1, 8), (1, 2, 3, 7, 50)
    for counts, epochs, every in itertools.product(all_counts, all_epochs, all_intervals):
        same = len({made(count, epochs, every, at_ends) for count in counts}) == 1
        assert harness.as_often(counts, epochs, every, at_ends) == same, (counts, epochs, every)
