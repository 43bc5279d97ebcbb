"""Ranks that come back to a training of the harness: what they are given, and where they stay out."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace

import numpy as np
import pytest

import malt
from apps.harness import memory, newcomers
from apps.harness.errors import BadInput, StaysOut
from apps.harness.marks import Mark
from apps.harness.shares import Shares


@pytest.fixture
def outside(monkeypatch):
    """This rank was started again, and is not admitted yet."""
    monkeypatch.setattr(malt, "init", lambda: SimpleNamespace(is_outside=True, is_elastic=False))


def test_a_newcomer_gets_what_was_offered():
    offered = newcomers.offered(7, 3, Mark(examples=30, seconds=1.5), 4.5, {"w": np.ones(2)})
    given = newcomers.Given({name: np.asarray(value) for name, value in offered.items()})
    assert (given.epoch, given.begun, given.before, given.trained_s) == (7, 3, Mark(examples=30, seconds=1.5), 4.5)
    assert list(given.state) == ["w"]


def test_it_stays_out_where_ranks_come_together(outside):
    with pytest.raises(StaysOut, match="meet in each epoch"):
        newcomers.refuse()


def test_a_job_that_may_grow_is_refused_where_ranks_come_together(monkeypatch):
    monkeypatch.setattr(malt, "init", lambda: SimpleNamespace(is_outside=False, is_elastic=True))
    with pytest.raises(BadInput, match="meet in each epoch.*: start it without --elastic"):
        newcomers.refuse()


def test_it_stays_out_where_the_others_have_ended(monkeypatch):
    vector = SimpleNamespace(accompany=lambda state: None)
    monkeypatch.setattr(malt, "rejoined", lambda: False)
    assert newcomers.exchanged([vector], dict) is None
    monkeypatch.setattr(malt, "rejoined", lambda: True)
    with pytest.raises(StaysOut, match="have ended their training"):
        newcomers.exchanged([vector], dict)


@pytest.mark.serial
def test_rows_go_back_to_a_rank_that_comes_back():
    def shares(_):
        made, gone = Shares(40), malt.size() - 1
        alive = tuple(range(malt.size()))
        assert not made.changed(alive)
        assert made.changed(alive[:gone])
        more = made.rows(0)
        assert made.changed(alive) and made.rows(0) < more
        return True

    assert malt.simulate(shares, 4) == [True] * 4


def test_a_rank_beyond_a_job_that_has_shrunk_knows_what_its_queues_take(monkeypatch):
    monkeypatch.setattr(malt, "size", lambda: 2)
    monkeypatch.setattr(malt, "rank", lambda: 3)
    monkeypatch.setattr(malt, "init", lambda: SimpleNamespace(reachable=lambda senders: (0, 1, 2)))  # any may be one
    assert memory.queues_nbytes(Namespace(graph="all", degree=None), 100, depth=2) == 3 * 2 * 100
