"""Bytes of all ranks, as ranks of several hosts exchange them: in one call of MPI where they are short."""

from __future__ import annotations

import pytest

from dstorm.transports import progress

pytestmark = pytest.mark.parallel


@pytest.mark.parametrize("length", [0, 1, 248, 249, 5000])
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
