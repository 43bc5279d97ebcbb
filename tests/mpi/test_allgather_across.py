"""What ranks of several hosts exchange, and read of each other."""

from __future__ import annotations

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

    waited = []

    def waitall(requests):
        waited.append(len(requests))
        MPI.Request.Waitall(requests)

    def interrupt(polls):
        raise KeyboardInterrupt

    monkeypatch.setattr(progress, "spans_hosts", lambda hosts: True)
    monkeypatch.setattr(module, "yield_core", interrupt)
    transport = mpi.MpiTransport(MPI.COMM_WORLD)
    try:
        window = transport.window(64)
        window.memory[:] = transport.rank + 1
        transport.barrier()
        peer, far = (transport.rank + 1) % transport.size, window._far
        far._looks, found = True, np.zeros((2, 8), np.uint8)
        request = SimpleNamespace(Testall=lambda requests: False, Waitall=waitall)
        with monkeypatch.context() as patch:
            patch.setattr(module, "MPI", SimpleNamespace(BYTE=MPI.BYTE, Request=request))
            with pytest.raises(KeyboardInterrupt):
                far.get(found.reshape(-1), peer, 0)
            with pytest.raises(KeyboardInterrupt):
                far.get(np.empty((2, 8), np.uint8), peer, 0, np.array([0, 5]))
        assert waited == [1, 1] and (found == peer + 1).all()
        transport.barrier()
        window.free()
    finally:
        transport.close()
