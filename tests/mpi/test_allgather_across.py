"""What ranks of several hosts exchange, and read of each other."""

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from dstorm.transports import progress

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize("length", [0, 1, 232, 233, 5000])
def test_all_ranks_get_the_bytes_of_all(monkeypatch, length):
    from mpi4py import MPI

    from dstorm.transports import mpi

    monkeypatch.setattr(progress, "spans_hosts", lambda hosts: True)
    transport = mpi.MpiTransport(MPI.COMM_WORLD)
    last = transport.size - 1
    try:
        data = {rank: bytes([rank]) * (length if rank == last else 2 * rank) for rank in range(transport.size)}
        assert transport.allgather(data[transport.rank]) == list(data.values())
    finally:
        transport.close()


def test_what_is_read_has_come_before_a_signal_ends_the_call(monkeypatch):
    """The memory is MPI's until then."""
    from mpi4py import MPI

    from dstorm.transports import mpi
    from dstorm.transports.mpi import window as module

    library, waited = import_module("dstorm.transports.mpi.library"), []

    def waitall(requests):
        waited.append(len(requests))
        MPI.Request.Waitall(requests)

    def interrupt(polls):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "spans_hosts", lambda hosts: True)
    transport = mpi.MpiTransport(MPI.COMM_WORLD)
    try:
        window = transport.window(64)
        window.memory[:] = transport.rank + 1
        transport.barrier()
        peer, far = (transport.rank + 1) % transport.size, window._far
        far._looks, found = True, np.zeros((2, 8), np.uint8)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MPI", SimpleNamespace(BYTE=MPI.BYTE, Request=SimpleNamespace(Waitall=waitall)))
            patch.setattr(library, "MPI", SimpleNamespace(Request=SimpleNamespace(Testall=lambda requests: False)))
            patch.setattr(library, "yield_core", interrupt)
            patch.setattr(library, "_under_way", left := [])
            with pytest.raises(KeyboardInterrupt):
                far.get(found.reshape(-1), peer, 0)
            with pytest.raises(KeyboardInterrupt):
                far.get(np.empty((2, 8), np.uint8), peer, 0, np.array([0, 5]))
        assert waited == [1, 1] and (found == peer + 1).all()
        assert len(left) == 2  # they hold the memory also where nothing waits for them
        transport.barrier()
        window.free()
    finally:
        transport.close()


def test_what_another_thread_sends_as_a_rank_enters_a_barrier_counts_as_sent_after_it(monkeypatch):
    """What the rank has sent has arrived then, but that may not have."""
    from mpi4py import MPI

    from dstorm.transports import mpi

    monkeypatch.setattr(progress, "spans_hosts", lambda hosts: True)
    transport = mpi.MpiTransport(MPI.COMM_WORLD)
    try:
        before, seen = transport.meetings, []
        with monkeypatch.context() as patch:
            patch.setattr(transport.carrier, "drain", lambda what, patience_s: seen.append(transport.meetings))
            transport.barrier()
            transport.allgather(b"x")
        assert seen == [before + 1, before + 2] and transport.meetings == before + 2
        assert transport._barrier.leaves_puts  # the MPI libraries of these tests send at once
    finally:
        transport.close()


@pytest.mark.parametrize(
    ("vendor", "sends"),
    [
        (("Open MPI", (5, 0, 0)), True), (("Open MPI", (4, 1, 6)), False), (("MPICH", (4, 0, 0)), True),
        (("MPICH", (3, 4, 3)), False), (("Intel MPI", (2021, 18, 0)), False),
    ],
)  # fmt: skip
def test_which_libraries_send_a_short_put_without_a_flush(monkeypatch, vendor, sends):
    library = import_module("dstorm.transports.mpi.library")
    monkeypatch.setattr(library, "MPI", SimpleNamespace(get_vendor=lambda: vendor))
    assert library.sends_at_once() is sends
