"""The transport over MPI and its windows keep the contracts of dstorm/transport.py, on any number of ranks."""

from __future__ import annotations

import pytest
from contracts import check_transport, check_window

pytestmark = pytest.mark.parallel
MPI = pytest.importorskip("mpi4py.MPI")

from dstorm.transports.mpi import MpiTransport  # noqa: E402


def run(body):
    transport = MpiTransport(MPI.COMM_WORLD, 30.0)
    found = body(transport)
    transport.close()
    return [found]


def test_a_window_over_mpi_keeps_its_contract():
    check_window(run)


def test_a_transport_over_mpi_keeps_its_contract():
    check_transport(run)
