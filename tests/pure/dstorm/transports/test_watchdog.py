"""A call that hangs is named and the job ended."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from processes import wait_for

from dstorm.transports import watchdog
from dstorm.transports.watchdog import Watchdog


@pytest.fixture
def left(monkeypatch):
    """What is called instead of leaving the process."""
    calls = []
    monkeypatch.setattr(watchdog.os, "_exit", calls.append)
    monkeypatch.setattr(watchdog, "_LAST_RESORT_S", 0.05)
    return calls


def test_a_call_that_hangs(capsys, left):
    ended = threading.Event()
    dog = Watchdog(3, 0.1, ended.set)
    with dog.watching("MPI_Win_flush to rank 1"):
        with dog.watching("what another thread calls, and comes back from"):
            pass
        assert ended.wait(60)
    dog.stop()
    wait_for(lambda: left)
    assert "malt: rank 3: MPI_Win_flush to rank 1 has not returned for 0.1 s" in capsys.readouterr().err
    assert left == [1]


def test_time_in_which_the_process_was_stopped_does_not_count(monkeypatch, left):
    """Not the 1000 s of the stop, but 0.5 s of it, and what passes afterwards."""
    now, polls, ended = [0.0], [], []
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: polls.append(0) or now[0]))
    dog = Watchdog(3, 1.0, lambda: ended.append(now[0]))
    with dog.watching("MPI_Win_flush to rank 1"):
        for now[0] in (1000.0, 1000.3, 1000.6):
            assert not ended
            seen = len(polls)
            wait_for(lambda seen=seen: ended or len(polls) > seen + 1)
    dog.stop()
    assert ended == [1000.6]


def test_calls_that_return_are_left_alone(monkeypatch, capsys, left):
    now, polls = [0.0], []
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: polls.append(0) or now[0]))
    dog = Watchdog(0, 0.2, lambda: pytest.fail("ended"))
    for turn in range(5):
        with dog.watching("a short call") if turn in (0, 1) else nullcontext():
            now[0], seen = now[0] + 0.15, len(polls)
            wait_for(lambda seen=seen: len(polls) > seen + 1)
    dog.stop()
    assert capsys.readouterr().err == "" and left == []
