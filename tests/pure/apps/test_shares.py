"""Which epochs are trained again where the rows of the dead were missing for a while."""

from __future__ import annotations

import types

import pytest

import malt
from apps.harness import Shares, shares
from malt.data.shards import living_rows

pytestmark = pytest.mark.serial


@pytest.fixture
def world(monkeypatch):
    """A session of four ranks whose deaths and time are set by hand: each epoch takes a second."""
    state = types.SimpleNamespace(now=0.0, lost={}, found={}, others_owe=0, barriers=0)

    def enter():
        state.barriers += 1
        state.lost |= state.found

    def alive():
        return tuple(rank for rank in range(4) if rank not in state.lost)

    session = types.SimpleNamespace(survive=True)

    def lost_ranks():
        state.lost |= state.found
        return [malt.LostRank(rank, at, f"why {rank} ended") for rank, at in sorted(state.lost.items())]

    monkeypatch.setattr(shares.time, "time", lambda: state.now)
    monkeypatch.setattr(shares.malt, "alive", alive)
    monkeypatch.setattr(shares.malt, "size", lambda: 4)
    monkeypatch.setattr(shares.malt, "rank", lambda: 1)
    monkeypatch.setattr(shares.malt, "barrier", enter)
    monkeypatch.setattr(shares.malt, "init", lambda: session)
    monkeypatch.setattr(shares.malt, "lost_ranks", lost_ranks)
    monkeypatch.setattr(shares, "by_rank", lambda missing: {1: missing, 2: state.others_owe})
    monkeypatch.setattr(shares, "rows_of", lambda count, rank, failed: living_rows(count, rank, 4, failed))
    state.session = session
    return state


def trained(world, last=10, sync="asp", failures=()):
    """The epochs in their order. `failures`: after so many epochs a rank is found to have died, at some time."""
    some, epochs = Shares(100), []
    for epoch in some.epochs(1, last, sync):
        some.changed(some.present())
        world.now += 1
        epochs.append(epoch)
        for after, rank, at in failures:
            if after == len(epochs):
                world.lost[rank] = at
    return epochs


def test_nobody_dies(world):
    assert trained(world) == list(range(1, 11))
    assert world.barriers == 1


def test_one_that_is_found_to_stand_still_at_the_end(world):
    world.found = {3: 6.5}
    assert trained(world) == [*range(1, 11), 7, 8, 9, 10]
    assert world.barriers == 2


def test_one_that_stood_still_for_long_enough_before_the_end(world):
    assert trained(world, failures=[(8, 3, 3.5)]) == [*range(1, 11), 8, 9, 10]


def test_as_many_epochs_have_followed(world):
    assert trained(world, failures=[(5, 3, 2.5)]) == list(range(1, 11))


def test_all_train_as_many_as_the_one_that_owes_most(world):
    world.others_owe = 2
    epochs = trained_until(world, 12)
    assert epochs == [*range(1, 11), 9, 10]


def trained_until(world, count):
    some, epochs = Shares(100), []
    for epoch in some.epochs(1, 10, "asp"):
        epochs.append(epoch)
        if len(epochs) == count:
            break
    return epochs


def test_no_more_than_there_were(world):
    world.others_owe = 50
    assert trained_until(world, 15) == [*range(1, 11), 1, 2, 3, 4, 5]


def test_where_ranks_wait_for_each_other_or_do_not_die_nobody_meets(world):
    world.found = {3: 6.5}
    assert trained(world, sync="bsp") == list(range(1, 11))
    world.session.survive = False
    assert trained(world) == list(range(1, 11))
    assert world.barriers == 0


def test_rows_that_the_dead_had_from_others_count(world, capsys):
    some = Shares(100)
    world.now, world.lost = 2, {3: 1.5}
    assert some.changed(some.present())
    world.lost |= {0: 1.6}
    assert some.changed(some.present()) and not some.changed(some.present())
    world.found = {2: 1.7}
    lost = some.losses.reports()
    assert [(one["rank"], one["at_s"], one["rows"]) for one in lost] == [(0, 1.6, 33), (2, 1.7, 51), (3, 1.5, 25)]
    assert capsys.readouterr().err == "malt: 33 rows of rank 0 are dealt to ranks 1, 2\n"  # rank 0 told of 3


def test_deaths_are_dated_from_the_beginning(world):
    world.now = 5.0
    some = Shares(100)
    world.lost = {0: 4.0, 3: 6.5}  # one before it, while the files were read
    assert [one["at_s"] for one in some.losses.reports()] == [0.0, 1.5]


def test_who_die_together_have_nothing_of_each_other(world, capsys):
    some = Shares(100)
    world.lost = {3: 1.5, 0: 1.5}
    assert some.changed(some.present())
    assert {one["rank"]: one["rows"] for one in some.losses.reports()} == {0: 25, 3: 25}
    reports = "malt: 25 rows of rank {} are dealt to ranks 1, 2\n"
    assert capsys.readouterr().err == reports.format(0) + reports.format(3)


def test_nothing_to_train(world):
    assert trained(world, last=0) == []
