"""At thread level SERIALIZED no MPI call overlaps with one of the progress thread: each call holds the lock."""

import threading

import numpy as np
import pytest

from dstorm.transports import progress


@pytest.fixture
def transport(monkeypatch):
    pytest.importorskip("mpi4py")
    from mpi4py import MPI

    from dstorm.transports import mpi

    monkeypatch.setattr(MPI, "Query_thread", lambda: MPI.THREAD_SERIALIZED)
    monkeypatch.setattr(progress, "spans_hosts", lambda hosts: True)
    monkeypatch.setattr(progress, "library_helps", lambda *_: False)
    made = mpi.MpiTransport(MPI.COMM_WORLD)
    yield made
    made.close()


def test_a_rank_that_polls_itself_relieves_the_helper(transport, monkeypatch):
    relieved = []

    class Noted:
        def __setattr__(self, name, value):
            relieved.append((name, value))

    with monkeypatch.context() as patch:
        patch.setattr(transport, "_helper", Noted())
        transport.progress()
    assert relieved == [("is_relieved", True)]


class Watched:
    """An object of the MPI library that calls note(name) before each of its methods."""

    def __init__(self, target, note):
        self._target, self._note = target, note

    def __getattr__(self, name):
        if not callable(found := getattr(self._target, name)):
            return found

        def call(*args, **kwargs):
            self._note(name)
            return found(*args, **kwargs)

        return call


def test_calls_hold_the_lock(transport, monkeypatch):
    from dstorm.transports.mpi import window as module

    source, array, make = np.ones(8, np.uint8), np.ones(3), module._windows
    calls, free = set(), []

    def note(name):
        calls.add(name)
        thread = threading.Thread(target=progress.unless_held(transport._lock, lambda: free.append(name)))
        thread.start()
        thread.join()

    def noted(*args):
        note("Allocate")
        return [Watched(win, note) for win in make(*args)]

    monkeypatch.setattr(module, "_windows", noted)
    windows = [transport.window(64)]
    with monkeypatch.context() as watching:
        for owner, comm in [(transport._by_mpi, transport._comm), (transport, transport._comm)]:
            watching.setattr(owner, "_comm", Watched(comm, note))
        for window in windows:
            window._far.put(source, transport.rank, 0)
            window._far.prepared(source, transport.rank, 8)()
            window._far.flush([transport.rank])
            window.sync()
            assert window.memory[:16].all()
            transport.barrier()
            window.free()
        transport.allreduce(array, "sum")
        transport.broadcast(array)
        assert transport.allgather(b"x" * 999) == [b"x" * 999] * transport.size
    assert free == []
    assert calls >= {"Allocate", "Put", "Flush", "Sync", "Free", "Allgatherv", "Alltoallv", "Bcast"}
