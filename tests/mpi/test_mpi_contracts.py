"""The transport over MPI and its windows keep the contracts of dstorm/transport.py, on any number of ranks."""

import numpy as np
import pytest
from contracts import check_edge, check_transport, check_window

pytestmark = pytest.mark.parallel
MPI = pytest.importorskip("mpi4py.MPI")

from dstorm.transports.mpi import MpiTransport  # noqa: E402


class Divided(MpiTransport):
    """Ranks that count as those of several hosts: `hosts(rank)` is the host of a rank."""

    hosts_of = staticmethod(lambda rank: "one")

    def _find_hosts(self):
        hosts = tuple(self.hosts_of(rank) for rank in range(self.size))
        self._host = self._comm.Split(hosts.index(hosts[self.rank]))
        return hosts


class Halves(Divided):
    hosts_of = staticmethod(lambda rank: f"host {rank % 2}")


class Alone(Divided):
    hosts_of = staticmethod(lambda rank: f"host {rank}")


def on(kind):
    def run(body):
        transport = kind(MPI.COMM_WORLD, 30.0)
        found = body(transport)
        transport.close()
        return [found]

    return run


@pytest.mark.parametrize("kind", [MpiTransport, Halves, Alone])
def test_a_window_over_mpi_keeps_its_contract(kind):
    check_window(on(kind))


def test_what_lies_between_rows_of_another_host_is_moved_with_them():
    transport, width = Alone(MPI.COMM_WORLD, 30.0), 12
    window = transport.window(10_000)
    rows = np.empty((3, width), np.uint8)
    moved = {peer: window.get(rows, peer, 0, np.array([7, 0, 700])) for peer in range(transport.size)}
    assert moved == {peer: width * (3 if peer == transport.rank else 8 + 1) for peer in moved}
    window.free()
    transport.close()


def test_a_transport_over_mpi_keeps_its_contract():
    check_transport(on(MpiTransport))


@pytest.mark.parametrize("kind", [MpiTransport, Halves])
def test_an_edge_over_mpi_keeps_its_contract(kind):
    check_edge(on(kind), renews=kind is MpiTransport, has_threads=MPI.Query_thread() == MPI.THREAD_MULTIPLE)
