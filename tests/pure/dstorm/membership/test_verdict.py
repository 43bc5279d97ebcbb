"""Who leaves where ranks that have come back, or those they meet, are in different collective calls."""

from itertools import product

import pytest

from dstorm.membership.returns.verdict import Verdict, verdict

pytestmark = pytest.mark.serial
FINAL, CALLS = "malt.finalize", ("malt.finalize", "malt.barrier", "malt.allreduce")


def left(came_in, calls):
    """The ranks that are left of those in `calls`, by rank, and how each other one has left."""
    there, ways = set(range(len(calls))), {}
    while True:
        finished = {rank for rank in there if calls[rank] == FINAL}
        leaving = {}
        for rank in there:
            elsewhere = sorted(one for one in there if calls[one] != calls[rank])
            known = finished & {*elsewhere, rank}
            found, cause = verdict(came_in, rank, sorted(there - {rank}), elsewhere, known)
            if elsewhere and found is not Verdict.WAITS:
                assert calls[cause] != calls[rank] and cause in there
                leaving[rank] = found
        if not leaving:
            return there, ways
        ways |= leaving
        there -= leaving.keys()


@pytest.mark.parametrize("came_in", [(0, 0, 5), (0, 5, 5), (5, 0, 0), (5, 6, 7), (7, 6, 5), (0, 7, 5), (5, 5, 0)])
def test_those_that_are_left_are_in_one_call(came_in):
    """Nobody waits for ever, and somebody is left: not where programs that have never failed differ."""
    for calls in product(CALLS, repeat=3):
        there, ways = left(came_in, calls)
        assert len({calls[rank] for rank in there}) <= 1, calls
        differ = {calls[rank] for rank in range(3) if not came_in[rank]}
        assert there or len(differ) > 1, calls
        for rank, way in ways.items():
            assert way is Verdict.DIFFERS or came_in[rank], calls  # who has never failed is not refused


WAITS, LEAVES, DIFFERS = Verdict
CASES = {
    "the one that was admitted later leaves": ((0, 0, 5), 2, [0, 1], [0, 1], [], (LEAVES, 0)),
    "the others wait for that": ((0, 0, 5), 0, [1, 2], [2], [], (WAITS, 0)),
    "ranks that have never failed differ as ever, also beside one that has": (
        (0, 0, 5),
        0,
        [1, 2],
        [2, 1],
        [],
        (DIFFERS, 1),
    ),
    "one that has finished leaves": ((0, 0, 5), 2, [0, 1], [0, 1], [2], (DIFFERS, 0)),
    "not where the others came back after it": ((0, 0, 5), 0, [1, 2], [2], [0], (WAITS, 0)),
    "these leave": ((0, 0, 5), 2, [0, 1], [0, 1], [0, 1], (LEAVES, 0)),
    "once all before them have finished": ((0, 0, 5), 2, [0, 1], [0], [0], (WAITS, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_verdicts(case):
    *arguments, expected = CASES[case]
    assert verdict(*arguments) == expected
