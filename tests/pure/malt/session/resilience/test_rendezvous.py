"""The rendezvous of ranks of which some fail before, in or after it: the live ranks agree on the members."""

import os
import random
import threading
import types

import pytest

from dstorm import DeadlinePassed
from dstorm.errors import Refused
from malt.runner import reporting
from malt.runner.events import Kind, append, event
from malt.session.resilience import rendezvous
from malt.session.resilience.rendezvous import Members, Rendezvous


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
    assert found == dict.fromkeys(range(4), Members(dict.fromkeys(range(4), 0), 600))


def test_failed_ranks_are_not_waited_for(tmp_path, fault_tolerant):
    found, _ = begun(tmp_path, {}, fault_tolerant, failed_before=[1, 3])
    assert found == dict.fromkeys((0, 2), Members({0: 0, 2: 0}, 800))


@pytest.mark.parametrize("seed", range(40))
def test_live_ranks_agree_whichever_ranks_fail(tmp_path, fault_tolerant, seed):
    choose = random.Random(seed)
    failures = {rank: choose.randrange(1, 8) for rank in choose.sample(range(4), choose.randrange(1, 4))}
    found, failed = begun(tmp_path, failures, fault_tolerant)
    assert set(found) | failed == set(range(4)) and found
    assert len(set(map(str, found.values()))) == 1, found
    assert set(found[min(found)].lives) >= set(range(4)) - failed


def test_missing_ranks_are_named(tmp_path):
    with pytest.raises(DeadlinePassed, match="rank 1"):
        Rendezvous(tmp_path, "session-1", 0, 2).come(1, lambda: (), 0.05)


def test_a_later_session_has_its_own_rendezvous(tmp_path):
    assert Rendezvous(tmp_path, "session-1", 0, 1).come(1, lambda: (), 5) == Members({0: 0}, 1)
    assert Rendezvous(tmp_path, "session-2", 0, 1).come(2, lambda: (), 5) == Members({0: 0}, 2)


def again(folder, rank, incarnation, is_admitted=False):
    """Report that `rank` was started again, and whether the others have admitted it."""
    append(folder, event(Kind.AGAIN, rank, str(incarnation)))
    if is_admitted:
        append(folder, event(Kind.READY, rank))


def test_a_rank_that_was_started_again_and_admitted_begins_the_next_session_with_the_others(tmp_path):
    again(tmp_path, 1, 2, is_admitted=True)
    with pytest.raises(DeadlinePassed, match="rank 1"):
        Rendezvous(tmp_path, "session-2", 0, 2, is_first=False).come(5, lambda: (), 0.05)
    found = Rendezvous(tmp_path, "session-2", 1, 2, 2, is_first=False).come(3, lambda: (), 5)
    assert found == Members({0: 0, 1: 2}, 3)


def test_nobody_waits_for_a_rank_that_was_admitted_to_no_session(tmp_path):
    again(tmp_path, 1, 1)
    with pytest.raises(DeadlinePassed, match="rank 0"):
        Rendezvous(tmp_path, "session-2", 1, 2, 1, is_first=False).come(3, lambda: (), 0.05)
    found = Rendezvous(tmp_path, "session-2", 0, 2, is_first=False).come(5, lambda: (), 5)
    assert found.lives == {0: 0, 1: 1}, "it had come before this was decided"
    found = Rendezvous(tmp_path, "session-3", 0, 2, is_first=False).come(5, lambda: (), 5)
    assert found.lives == {0: 0}


def test_ranks_that_were_admitted_to_no_session_begin_none_alone(tmp_path):
    again(tmp_path, 1, 1)
    again(tmp_path, 2, 1)
    with pytest.raises(Refused, match="rank 1 stays out: the other ranks have ended"):
        Rendezvous(tmp_path, "session-2", 1, 3, 1, is_first=False).come(5, lambda: {0}, 5)
    found = Rendezvous(tmp_path, "session-1", 1, 3, 1).come(5, lambda: {0, 2}, 5)
    assert found.lives == {1: 1}, "before the first one all are alike"


def test_one_that_is_not_of_those_which_begin_the_job_begins_no_session(tmp_path):
    with pytest.raises(DeadlinePassed, match="rank 0"):
        Rendezvous(tmp_path, "session-1", 2, 2, 1).come(5, lambda: (), 0.05)
    found = [Rendezvous(tmp_path, "session-1", rank, 2).come(5, lambda: {1}, 5) for rank in (0, 1)]
    assert found[0].lives == {0: 0}
