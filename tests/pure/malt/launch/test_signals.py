"""Signals that the launcher receives."""

import os
import signal

import pytest

from malt.launch.processes import signals
from malt.launch.processes.signals import Signals


@pytest.fixture
def clock(monkeypatch):
    """A list whose only item is the time."""
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    return now


def test_a_repeated_signal_counts_once(clock):
    with Signals() as seen:
        for number, after_s, times in [(2, 0, 1), (2, 0.4, 1), (15, 0.1, 2), (2, 0.1, 3), (2, 1.0, 4)]:
            clock[0] += after_s
            os.kill(os.getpid(), number)
            assert (seen.first, seen.times) == (2, times)


def test_handlers_are_put_back():
    before = {number: signal.getsignal(number) for number in (1, 2, 15, signal.SIGTSTP, signal.SIGCHLD)}
    with Signals():
        assert signal.getsignal(15) != before[15]
    assert before == {number: signal.getsignal(number) for number in before}


def test_an_ignored_signal_stays_ignored():
    """As SIGINT is in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Signals() as seen:
            os.kill(os.getpid(), signal.SIGINT)
        assert seen.first is None
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_user_can_always_end_the_job(clock, monkeypatch):
    sent = []
    with Signals() as seen:
        monkeypatch.setattr(signals.os, "kill", lambda process, number: sent.append(number))
        for _ in range(5):
            clock[0] += 1
            assert sent == []
            seen._note(2, None)
        assert sent == [2] and signal.getsignal(2) is signal.SIG_DFL


def test_what_is_for_the_ranks_is_passed_on_and_ends_nothing():
    """It is passed on by who waits for the job, not within a handler."""
    passed = []
    with Signals() as seen:
        seen.pass_on = lambda number: passed.append(number) or True
        sent = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCONT, signal.SIGXCPU]
        for number in sent:
            os.kill(os.getpid(), number)
        assert passed == []
        seen.deliver()
        seen.deliver()
    assert passed == sent and seen.first is None


def test_what_no_rank_takes_ends_the_job_where_the_terminal_is_gone(clock):
    with Signals() as seen:
        os.kill(os.getpid(), signal.SIGUSR1)
        seen.deliver()
        assert seen.first is None
        os.kill(os.getpid(), signal.SIGHUP)
        seen.deliver()
    assert (seen.first, seen.times) == (signal.SIGHUP, 1)


def test_ctrl_z_stops_the_job_then_the_launcher(monkeypatch):
    done = []
    with Signals() as seen:
        seen.suspends = [done.append, lambda number: done.append(f"last {number:d}")]
        seen.pass_on = lambda number: done.append("again")
        monkeypatch.setattr(signals.os, "kill", lambda *_: [done.append("itself"), seen._keep(signal.SIGCONT, None)])
        seen._stop(signal.SIGTSTP, None)
        seen.deliver()
    assert done == ["last 19", signal.SIGSTOP, "itself", signal.SIGCONT, "last 18"]
