"""The rendezvous of ranks of which some fail before, in or after it: the live ranks agree on the members."""

from __future__ import annotations

import os
import random
import threading
import types

import pytest

from dstorm import DeadlinePassed
from malt.resilience import rendezvous
from malt.resilience.rendezvous import Members, Rendezvous
from malt.runner import reporting

pytestmark = pytest.mark.serial


class Failed(BaseException):
    """Ends a rank, as a kill would."""


@pytest.fixture
def fault_tolerant(monkeypatch):
    """A function that sets after how many changes of files the thread that calls it fails."""
    left = threading.local()

    def failing(function):
        def call(*arguments):
            left.changes = getattr(left, "changes", 10**9) - 1
            if left.changes == 0:
                raise Failed
            result = function(*arguments)
            left.changes -= 1
            if left.changes == 0:
                raise Failed
            return result

        return call

    shim = types.SimpleNamespace(replace=failing(os.replace), link=failing(os.link), getpid=threading.get_ident)
    monkeypatch.setattr(rendezvous, "os", shim)
    monkeypatch.setattr(reporting, "os", shim)
    monkeypatch.setattr(rendezvous, "append", failing(rendezvous.append))
    return lambda changes: setattr(left, "changes", changes)


def begun(folder, failures, fault_tolerant, size=4, free_nbytes=(800, 600, 900, 700), failed_before=()):
    """The members that each live rank returns, and the failed ranks. `failures`: after how many changes of files a rank
    fails."""
    failed, found = set(failed_before), {}

    def rank(own):
        fault_tolerant(failures.get(own, 10**9))
        try:
            found[own] = Rendezvous(folder, "session-1", own, size).come(free_nbytes[own], lambda: failed, 20)
        except Failed:
            failed.add(own)

    threads = [threading.Thread(target=rank, args=(own,)) for own in range(size) if own not in failed_before]
    random.shuffle(threads)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found, failed


def test_all_come(tmp_path, fault_tolerant):
    found, _ = begun(tmp_path, {}, fault_tolerant)
    assert found == dict.fromkeys(range(4), Members((0, 1, 2, 3), 600))


def test_failed_ranks_are_not_waited_for(tmp_path, fault_tolerant):
    found, _ = begun(tmp_path, {}, fault_tolerant, failed_before=[1, 3])
    assert found == dict.fromkeys((0, 2), Members((0, 2), 800))


@pytest.mark.parametrize("seed", range(40))
def test_live_ranks_agree_whichever_ranks_fail(tmp_path, fault_tolerant, seed):
    choose = random.Random(seed)
    failures = {rank: choose.randrange(1, 8) for rank in choose.sample(range(4), choose.randrange(1, 4))}
    found, failed = begun(tmp_path, failures, fault_tolerant)
    assert set(found) | failed == set(range(4)) and found
    assert len(set(found.values())) == 1, found
    assert set(found[min(found)].ranks) >= set(range(4)) - failed


def test_missing_ranks_are_named(tmp_path):
    with pytest.raises(DeadlinePassed, match="rank 1"):
        Rendezvous(tmp_path, "session-1", 0, 2).come(1, lambda: (), 0.05)


def test_a_later_session_has_its_own_rendezvous(tmp_path):
    assert Rendezvous(tmp_path, "session-1", 0, 1).come(1, lambda: (), 5) == Members((0,), 1)
    assert Rendezvous(tmp_path, "session-2", 0, 1).come(2, lambda: (), 5) == Members((0,), 2)
