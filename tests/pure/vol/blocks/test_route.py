"""The routes of blocks: who visits, in which round, and who writes to which lane."""

import pytest

from vol.blocks import route
from vol.blocks.route import Report


def routes(size):
    """Routes of blocks, as they begin and as they go on after failures."""
    ranks = tuple(range(size))
    for block in range(3):
        begun = route.first(block, ranks)
        yield begun
        for version in range(3 * size):
            holder = begun.visitor(version)
            copies = {rank: version - (rank != holder) for rank in ranks if rank != version % size}
            reports = {rank: Report(False, (0,) * block + (copy,), (0,) * (block + 1)) for rank, copy in copies.items()}
            if reports:
                yield route.mended(block, begun, reports)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_each_rank_visits_once_a_round(size):
    for way in routes(size):
        visits = [way.visitor(version) for version in range(way.version, way.version + 40)]
        rounds = [way.round_of(version) for version in range(way.version, way.version + 40)]
        assert rounds == sorted(rounds)
        for number in range(way.round + 1, way.round + 4):
            assert sorted(rank for rank, one in zip(visits, rounds, strict=True) if one == number) == list(way.ranks)
        for place, (rank, number) in enumerate(zip(visits, rounds, strict=True)):
            assert way.visit(rank, number) == way.version + place


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_lane_has_one_writer(size):
    for way in routes(size):
        writers = {}
        for version in range(way.version, way.version + 40):
            receiver, giver = way.visitor(version), way.giver(version)
            if receiver != giver:
                assert writers.setdefault((receiver, way.lane(version)), giver) == giver
