"""How a thread sleeps until its Puts to another host have arrived, before it flushes."""

import threading
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from dstorm.transports import progress
from dstorm.transports.mpi import window

UNWATCHED = SimpleNamespace(watching=nullcontext)


class Win:
    """A window whose Gets come back at once, and whose long Puts arrive when the test says so."""

    def __init__(self):
        self.calls, self.under_way, self.made = [], [], []

    def Put(self, origin, rank, target):  # noqa: N802
        self.calls.append(("Put", rank))

    def Rput(self, origin, rank, target):  # noqa: N802
        self.calls.append(("Rput", rank))
        self.under_way.append(MPI.Grequest.Start())
        self.made.append(self.under_way[-1])
        return self.made[-1]

    def Rget(self, origin, rank, target):  # noqa: N802
        done = MPI.Grequest.Start()
        done.Complete()
        return done

    def Flush(self, rank):  # noqa: N802
        self.calls.append(("Flush", rank))
        self.arrive()

    def arrive(self):
        for one in self.under_way:
            one.Complete()
        self.under_way = []


@pytest.fixture
def far(monkeypatch):
    monkeypatch.setattr(progress, "spins", lambda *_: True)
    return window._FarMemory(Win(), UNWATCHED)


def test_a_get_that_overtakes_a_long_put_does_not_end_the_sleep(far):
    far.put(np.zeros(1 << 20, np.uint8), 1, 0)
    thread = threading.Thread(target=far.linger, args=([1],))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive(), "it would spin in the flush from here on"
    far._win.arrive()
    thread.join(10)
    assert not thread.is_alive()


def test_it_looks_more_rarely_the_longer_they_take(far, monkeypatch):
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        if sum(naps) > 0.05:
            far._win.arrive()

    monkeypatch.setattr(window, "time", SimpleNamespace(sleep=sleep, monotonic=lambda: sum(naps)))
    far.put(np.zeros(1 << 20, np.uint8), 1, 0)
    far.linger([1])
    assert naps[0] < 1e-4 and naps == sorted(naps) and naps[-1] == 1e-3 and len(naps) < 150


def test_a_flush_completes_long_puts_too(far):
    for nbytes in (1 << 20, 8):
        far.put(np.zeros(nbytes, np.uint8), 1, 0)
    far.flush([1])
    assert far._win.calls == [("Rput", 1), ("Put", 1), ("Flush", 1)]
    assert far._long == {} and far._win.made == [MPI.REQUEST_NULL]


def test_calls_that_take_turns_leave_no_request_behind(monkeypatch):
    """A request would be completed outside the lock."""
    monkeypatch.setattr(progress, "spins", lambda *_: True)
    win = Win()
    far = window._FarMemory(progress.Serialized(win, threading.RLock()), UNWATCHED)
    far.put(np.zeros(1 << 20, np.uint8), 1, 0)
    assert win.calls == [("Put", 1)]
