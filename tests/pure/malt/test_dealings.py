"""Rows dealt by speed without a barrier: each row belongs to one rank in each epoch, also if ranks are late or fail."""

from __future__ import annotations

import pytest

import malt
from dstorm import Group, SimulatedTransport
from dstorm.membership.resilient import SurvivingTransport
from malt.data import Dealings, dealings
from malt.session import session
from malt.world.world import World

pytestmark = pytest.mark.serial

ROWS, EPOCHS = 103, 8
SPEEDS = (100.0, 300.0, 50.0, 300.0)
ARENA = 1 << 22


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    monkeypatch.setattr(dealings, "_LEAST_S", 0.0)


def trained(rank, nap=0):
    """The rows of this rank in each epoch that it begins, and its number of rows by rank."""
    some, found = Dealings(ROWS, 1, EPOCHS), []
    transport = malt.init().transport
    for epoch in range(1, EPOCHS + 1):
        some.begin(epoch, SPEEDS[rank] if epoch > 1 else 0.0)
        found.append(some.rows(epoch, rank, transport.view.failed).tolist())
        for polls in range(nap * len(found[-1])):
            transport.pause(polls)
    numbers = [some.numbers(epoch).tolist() for epoch in range(1, EPOCHS + 1)]
    some.close()
    return found, numbers


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("slow", [None, 0, 2])
def test_each_row_belongs_to_one_rank_in_each_epoch(seed, slow):
    everyone = malt.simulate(lambda rank: trained(rank, nap=3 * (rank == slow)), 4, seed)
    for epoch in range(EPOCHS):
        assert sorted(row for found, _ in everyone for row in found[epoch]) == list(range(ROWS))
    first, second, *_, last = everyone[0][1]
    assert first == second == [25.0, 26.0, 26.0, 26.0]
    assert everyone[0][1] == everyone[1][1] == everyone[2][1] == everyone[3][1]
    assert last != first


@pytest.mark.parametrize(
    ("speeds", "numbers"),
    [(SPEEDS, [13, 41, 7, 42]), ((100, 101, 102, 103), [25, 26, 26, 26])],
    ids=["in proportion", "about equal"],
)
def test_rows_are_dealt_in_proportion_to_speed(speeds, numbers):
    def train(rank):
        some = Dealings(ROWS, 1, EPOCHS)
        for epoch in range(1, EPOCHS + 1):
            if rank == 0:
                malt.barrier()  # the others have begun
            some.begin(epoch, speeds[rank] if epoch > 1 else 0.0)
            if rank:
                malt.barrier()
        return some.numbers(EPOCHS).tolist()

    assert malt.simulate(train, 4)[0] == numbers


def test_a_rank_that_falls_behind_gets_no_rows_until_it_has_caught_up():
    def train(rank):
        some = Dealings(ROWS, 1, EPOCHS)
        for epoch in range(1, EPOCHS + 1) if rank < 3 else (1,):
            if rank == 0:
                malt.barrier()
            some.begin(epoch, 100.0)
            if rank in (1, 2):
                malt.barrier()
        if rank == 3:
            for _ in range(EPOCHS):
                malt.barrier()
        return [some.numbers(epoch).tolist() for epoch in range(1, EPOCHS + 1)]

    numbers = malt.simulate(train, 4)[0]
    assert numbers[0] == numbers[1] == [25.0, 26.0, 26.0, 26.0]
    assert numbers[-1][3] == 0 and sum(numbers[-1]) == ROWS


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("victim", [0, 1])
def test_the_others_go_on_if_a_rank_fails(seed, victim):
    """The lowest live rank decides in its place. Once all know of the failure each row belongs to one of them."""
    group = Group(4, seed, {victim: 40 + 25 * seed})

    def live(rank):
        inner = SimulatedTransport(group, rank)
        transport = SurvivingTransport(inner, inner.window(ARENA), inner.find_failed, 5.0)
        session.enter_simulation(World(transport, 5.0))
        found, _ = trained(rank)
        transport.barrier("a test")
        return found

    results = group.run(live)
    living = [found for rank, found in enumerate(results) if rank not in group.failed]
    assert len(living) == 4 - len(group.failed) and all(len(found) == EPOCHS for found in living)
    rows = sorted(row for found in living for row in found[-1])
    assert rows == sorted(set(rows))
