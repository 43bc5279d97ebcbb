"""Processes that end, are stopped, or are others than they seem."""

import resource
import signal
import subprocess
import sys
import time

import pytest

from dstorm.membership.processes import Process, ProcessMonitor, _state, has_ended, is_stopped, this_process


@pytest.fixture
def sleeper():
    """A process, and what others know of it."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    mine = this_process()
    yield child, Process(child.pid, _state(child.pid)[1], mine.namespace)
    child.kill()
    child.wait()


def signal_and_wait(child, number):
    """Stop a process, or let it go on, and wait until it has."""
    child.send_signal(number)
    while (_state(child.pid)[0] in "Tt") != (number == signal.SIGSTOP):
        time.sleep(0.001)


def watch(process, clock=time.monotonic, suspect_after_s=None):
    return ProcessMonitor({3: process}, clock, suspect_after_s)


def test_who_was_killed_is_gone_also_while_nobody_has_waited_for_it(sleeper):
    child, process = sleeper
    monitor = watch(process)
    child.kill()
    end = time.monotonic() + 60
    while not monitor.find_failed() and time.monotonic() < end:
        time.sleep(0.001)
    assert monitor.find_failed() == [3]  # a zombie
    child.wait()
    assert monitor.find_failed() == [3]


def test_a_process_that_runs_has_not_failed_and_another_one_of_its_number_does_not_pass_for_it(sleeper):
    assert watch(sleeper[1]).find_failed() == watch(this_process()).find_failed() == []
    assert watch(sleeper[1]._replace(started=sleeper[1].started - 1)).find_failed() == [3]


def test_who_cannot_be_seen_is_never_reported(sleeper):
    child, process = sleeper
    elsewhere, unknown = watch(process._replace(namespace=1)), watch(Process())
    child.kill()
    child.wait()
    assert elsewhere.find_failed() == unknown.find_failed() == []
    assert has_ended(process) and not has_ended(process._replace(namespace=1)) and not has_ended(Process())


def test_who_takes_no_part_counts_as_ended_until_it_is_readmitted(sleeper):
    monitor = watch(sleeper[1])
    monitor.lose(3)
    assert monitor.find_failed() == [3] and not has_ended(sleeper[1])
    monitor.readmit(3, sleeper[1])
    assert monitor.find_failed() == []


def test_who_is_evicted_or_taken_for_dead_is_killed_where_it_can_be_seen(sleeper):
    child, process = sleeper
    watch(process).end([4])
    assert not watch(process).kill(4) and not watch(process._replace(namespace=1)).kill(3)
    assert watch(process._replace(started=process.started - 1)).kill(3)  # has ended; another one has its number
    assert child.poll() is None
    monitor = watch(process)
    monitor.end([3, 4])
    assert monitor.find_failed() == [3] and child.wait(60) == -signal.SIGKILL
    assert watch(process).kill(3)


def test_who_is_evicted_is_killed(sleeper):
    assert watch(sleeper[1]).kill(3) and sleeper[0].wait(60) == -signal.SIGKILL


def test_who_is_stopped_for_too_long_is_killed(sleeper):
    child, process = sleeper
    clock = [0.0]
    monitor = watch(process, lambda: clock[0], 2.0)
    signal_and_wait(child, signal.SIGSTOP)
    for clock[0] in (0.0, 1.0, 1.9):
        assert monitor.find_failed() == []
    signal_and_wait(child, signal.SIGCONT)
    clock[0] = 2.5
    assert monitor.find_failed() == []  # it has gone on in time
    assert monitor.stopped_s(3) == 2.5
    clock[0] = 2.95
    assert monitor.stopped_s(3) == 0
    signal_and_wait(child, signal.SIGSTOP)
    clock[0] = 3.0
    assert monitor.find_failed() == []
    for clock[0] in (4.0, 5.0):
        assert monitor.find_failed() == [] and monitor.stopped_s(3) == clock[0] - 3
    clock[0] = 5.1
    monitor.find_failed()
    assert child.wait(60) == -signal.SIGKILL
    clock[0] = 5.2
    assert monitor.find_failed() == [3]
    assert monitor.stopped_s(3) == pytest.approx(2.2)
    assert monitor.stopped_s(4) == 0


def test_who_runs_between_two_looks_does_not_stand_still():
    """As under cpulimit, which stops a process many times a second."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        process = Process(child.pid, _state(child.pid)[1], this_process().namespace)
        clock = [0.0]
        monitor = watch(process, lambda: clock[0], 2.0)
        for clock[0] in (0.0, 3.0, 6.0, 9.0):
            child.send_signal(signal.SIGCONT)
            ran = _state(child.pid)[2]
            while _state(child.pid)[2] == ran:
                time.sleep(0.001)
            signal_and_wait(child, signal.SIGSTOP)
            assert monitor.find_failed() == [] and monitor.stopped_s(3) == 0
        for clock[0] in (10.0, 11.0, 11.1):
            monitor.find_failed()
        assert child.wait(60) == -signal.SIGKILL
    finally:
        child.kill()
        child.wait()


def test_who_cannot_be_looked_at_lives(sleeper):
    """A rank without file descriptors must not take all others for dead. That one of them is gone it still finds."""
    child, process = sleeper
    monitor, limits = watch(process), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            open("/proc/self/stat")  # noqa: SIM115
        alive = monitor.find_failed(), has_ended(process), is_stopped(process), this_process()
        child.kill()
        child.wait()
        failed = monitor.find_failed(), has_ended(process)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert alive == ([], False, False, Process())
    assert failed == ([3], True)


@pytest.mark.parametrize("was_computing", [False, True])
def test_whoever_was_stopped_itself_does_not_count_that(sleeper, monkeypatch, was_computing):
    """Of a job that is suspended and resumed whole those who go on first see the others stand. One that was computing
    since its last look counts on."""
    child, process = sleeper
    clock, killed_at = [0.0], []
    monkeypatch.setattr("time.process_time", lambda: clock[0] if was_computing else 1.0)
    monitor = watch(process, lambda: clock[0], 2.0)
    signal_and_wait(child, signal.SIGSTOP)
    with monkeypatch.context() as patch:
        patch.setattr("dstorm.membership.processes.os.kill", lambda *_: killed_at.append(clock[0]))
        for clock[0] in (0.0, 60.0, 60.5, 60.9, 61.1):
            assert monitor.find_failed() == []
    assert killed_at[0] == (60.0 if was_computing else 61.1)
