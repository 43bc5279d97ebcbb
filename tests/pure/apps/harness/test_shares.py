"""Tests of apps.harness.shares: which epochs are trained again, and what is reported of failed ranks."""

import types

import pytest

import malt
from apps.harness import Shares, shares
from malt.data.shards import living_rows
from malt.session.world.crew import dealt


@pytest.fixture
def world(monkeypatch):
    """A session of four ranks whose failures and clock the test sets. Somebody sets that of the system meanwhile."""
    state = types.SimpleNamespace(now=0.0, lost={}, found={}, missing_elsewhere=0, barriers=0)

    def enter():
        state.barriers += 1
        state.lost |= state.found

    def alive():
        return tuple(rank for rank in range(4) if rank not in state.lost)

    class Session:
        crew, survive = None, True

        @property
        def dealt(self):
            return dealt(range(4), state.lost)

    session = Session()

    def rows_of(count, rank, failed):
        assert rank not in failed
        return living_rows(count, rank, range(4), failed)

    def lost_ranks():
        state.lost |= state.found
        lost = sorted(state.lost.items())
        return [malt.LostRank(rank, -60.0 * at, f"why {rank} ended", at_s=at) for rank, at in lost]

    monkeypatch.setattr(shares.malt, "clock", lambda: state.now)
    monkeypatch.setattr(shares.malt, "alive", alive)
    monkeypatch.setattr(shares.malt, "epochs", lambda end, first: range(first, end))
    monkeypatch.setattr(shares.malt, "rank", lambda: 1)
    monkeypatch.setattr(shares.malt, "barrier", enter)
    monkeypatch.setattr(shares.malt, "init", lambda: session)
    monkeypatch.setattr(shares.malt, "lost_ranks", lost_ranks)
    monkeypatch.setattr(shares, "by_rank", lambda mine: {1: mine, 2: [state.missing_elsewhere, mine[1]]})
    monkeypatch.setattr(shares, "rows_of", rows_of)
    state.session = session
    return state


def trained(world, last=10, sync="asp", failures=()):
    """The epochs in their order, a second each. `failures`: (epochs until it is found, rank, time of the failure)."""
    some, epochs = Shares(100), []
    for epoch in some.epochs(1, last, sync):
        some.changed(some.present())
        world.now += 1
        epochs.append(epoch)
        for after, rank, at in failures:
            if after == len(epochs):
                world.lost[rank] = at
    return epochs


def test_without_failures_each_epoch_comes_once(world):
    assert trained(world) == list(range(1, 11))
    assert world.barriers == 1


def test_epochs_without_a_rank_that_is_found_stopped_at_the_end_come_again(world):
    world.found = {3: 6.5}
    assert trained(world) == [*range(1, 11), 7, 8, 9, 10]
    assert world.barriers == 2


def test_fewer_epochs_come_again_if_some_have_followed(world):
    assert trained(world, failures=[(8, 3, 3.5)]) == [*range(1, 11), 8, 9, 10]


def test_nothing_comes_again_where_as_many_epochs_have_followed(world):
    assert trained(world, failures=[(5, 3, 2.5)]) == list(range(1, 11))


def test_all_ranks_train_as_many_epochs_again(world):
    world.missing_elsewhere = 2
    epochs = trained_until(world, 12)
    assert epochs == [*range(1, 11), 9, 10]


def trained_until(world, count):
    some, epochs = Shares(100), []
    for epoch in some.epochs(1, 10, "asp"):
        epochs.append(epoch)
        if len(epochs) == count:
            break
    return epochs


def test_at_most_all_epochs_come_again(world):
    world.missing_elsewhere = 50
    assert trained_until(world, 15) == [*range(1, 11), 1, 2, 3, 4, 5]


def test_under_bsp_or_without_fault_tolerance_there_is_no_barrier(world):
    world.found = {3: 6.5}
    assert trained(world, sync="bsp") == list(range(1, 11))
    world.session.survive = False
    assert trained(world) == list(range(1, 11))
    assert world.barriers == 0


def test_rows_dealt_to_a_rank_that_fails_later_count(world, capsys):
    some = Shares(100)
    world.now, world.lost = 2, {3: 1.5}
    assert some.changed(some.present())
    world.lost |= {0: 1.6}
    assert some.changed(some.present()) and not some.changed(some.present())
    world.found = {2: 1.7}
    found = some.failures.entries()
    assert [(one["rank"], one["at_s"], one["rows"]) for one in found] == [(0, 1.6, 33), (2, 1.7, 51), (3, 1.5, 25)]
    assert capsys.readouterr().err == "malt: 33 rows of rank 0 are dealt to ranks 1, 2\n"  # rank 0 reported rank 3
    some.failures.mark_anew(7)  # rank 2 has failed since then
    assert [one.get("anew_in_epoch") for one in some.failures.entries()] == [7, None, 7]


def test_times_of_failures_count_from_the_start(world):
    world.now = 5.0
    some = Shares(100)
    world.lost = {0: 4.0, 3: 6.5}  # rank 0 failed before it, while files were read
    assert [one["at_s"] for one in some.failures.entries()] == [0.0, 1.5]


def test_ranks_that_fail_together_get_no_rows_of_each_other(world, capsys):
    some = Shares(100)
    world.lost = {3: 1.5, 0: 1.5}
    assert some.changed(some.present())
    assert {one["rank"]: one["rows"] for one in some.failures.entries()} == {0: 25, 3: 25}
    line = "malt: 25 rows of rank {} are dealt to ranks 1, 2\n"
    assert capsys.readouterr().err == line.format(0) + line.format(3)


def test_a_rank_that_has_joined_since_rows_were_dealt_has_its_part(world):
    """As in the report of a job that has grown, where it has failed before its first epoch."""
    some = Shares(100)
    some.changed((0, 1, 2))
    assert some.rows(3) == 25 and some.rows(0) == 33


def test_no_epochs(world):
    assert trained(world, last=0) == []
