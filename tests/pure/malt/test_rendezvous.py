"""Ranks that come together, of which some die before, while or after they do: those who live agree on who begins."""

from __future__ import annotations

import os
import random
import threading
import types

import pytest

from dstorm import DeadlinePassed
from malt.resilience import rendezvous
from malt.resilience.rendezvous import Crew, Muster
from malt.runner import program

pytestmark = pytest.mark.serial


class Died(BaseException):
    """What ends a rank that is killed."""


@pytest.fixture
def mortal(monkeypatch):
    """Sets after how many changes of files the thread that calls it dies."""
    left = threading.local()

    def dying(function):
        def call(*arguments):
            left.changes = getattr(left, "changes", 10**9) - 1
            if left.changes == 0:
                raise Died
            result = function(*arguments)
            left.changes -= 1
            if left.changes == 0:
                raise Died
            return result

        return call

    shim = types.SimpleNamespace(replace=dying(os.replace), link=dying(os.link), getpid=threading.get_ident)
    monkeypatch.setattr(rendezvous, "os", shim)
    monkeypatch.setattr(program, "os", shim)
    return lambda changes: setattr(left, "changes", changes)


def begun(folder, deaths, mortal, size=4, rooms=(800, 600, 900, 700), gone_before=()):
    """Who begins, as each rank that lived on sees it. `deaths`: after how many changes of files a rank dies."""
    dead, found = set(gone_before), {}

    def rank(own):
        mortal(deaths.get(own, 10**9))
        try:
            found[own] = Muster(folder, "session-1", own, size).come(rooms[own], lambda: dead, 20)
        except Died:
            dead.add(own)

    threads = [threading.Thread(target=rank, args=(own,)) for own in range(size) if own not in gone_before]
    random.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, dead


def test_all_come(tmp_path, mortal):
    found, _ = begun(tmp_path, {}, mortal)
    assert found == dict.fromkeys(range(4), Crew((0, 1, 2, 3), 600))


def test_who_is_gone_is_not_waited_for(tmp_path, mortal):
    found, _ = begun(tmp_path, {}, mortal, gone_before=[1, 3])
    assert found == dict.fromkeys((0, 2), Crew((0, 2), 800))


@pytest.mark.parametrize("seed", range(40))
def test_all_who_live_come_to_the_same_whoever_dies(tmp_path, mortal, seed):
    choose = random.Random(seed)
    deaths = {rank: choose.randrange(1, 8) for rank in choose.sample(range(4), choose.randrange(1, 4))}
    found, dead = begun(tmp_path, deaths, mortal)
    assert set(found) | dead == set(range(4)) and found
    assert len(set(found.values())) == 1, found
    assert set(found[min(found)].ranks) >= set(range(4)) - dead


def test_who_does_not_come_is_named(tmp_path):
    with pytest.raises(DeadlinePassed, match="rank 1"):
        Muster(tmp_path, "session-1", 0, 2).come(1, lambda: (), 0.05)


def test_a_later_session_is_another(tmp_path):
    assert Muster(tmp_path, "session-1", 0, 1).come(1, lambda: (), 5) == Crew((0,), 1)
    assert Muster(tmp_path, "session-2", 0, 1).come(2, lambda: (), 5) == Crew((0,), 2)
