"""The link between two hosts, as a plain TCP connection finds it, and the compute of ranks while all of them train."""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Iterator

import malt
from malt.models.linear import Learner, Order

STREAM_NBYTES, FIRST_NBYTES = 2 << 20, 512 << 10
"""Bytes of a plain TCP stream, and those of them before the clock starts: what the link has saved up is gone then."""
ROUND_TRIPS = 20
PARTS = 60
"""Parts that ranks train at once to measure their compute."""
_LIMIT_S = 60.0


def link() -> tuple[float, float]:
    """Latency in seconds and bytes a second of a plain TCP connection between the first two hosts. Collective."""
    hosts, rank = malt.hosts(), malt.rank()
    first, second = (hosts.index(host) for host in list(dict.fromkeys(hosts))[:2])
    listening = socket.create_server(("", 0), backlog=1) if rank == second else None
    mine = None
    if listening is not None:
        mine = [socket.gethostbyname(socket.gethostname()), listening.getsockname()[1]]
    address, port = malt.allgather(mine)[second]
    found = 0.0, 0.0
    if listening is not None:
        with listening:
            listening.settimeout(_LIMIT_S)
            _serve(listening.accept()[0])
    elif rank == first:
        with socket.create_connection((address, port), _LIMIT_S) as connection:
            found = _timed(connection)
    latency_s, bandwidth = malt.allgather(list(found))[first]
    return latency_s, bandwidth


def _serve(connection: socket.socket) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(ROUND_TRIPS):
            connection.sendall(connection.recv(1))
        connection.sendall(bytes(STREAM_NBYTES))


def _timed(connection: socket.socket) -> tuple[float, float]:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    trips = []
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        connection.sendall(b"?")
        connection.recv(1)
        trips.append(time.perf_counter() - start)
    come, start, start_nbytes = 0, 0.0, 0
    while come < STREAM_NBYTES:
        come += len(connection.recv(1 << 16))
        if not start and come >= FIRST_NBYTES:
            start, start_nbytes = time.perf_counter(), come
    return statistics.median(trips) / 2, (come - start_nbytes) / (time.perf_counter() - start)


def compute_s(learner: Learner, parts: Iterator[Order]) -> float:
    """Seconds of a part while all ranks train at once, and nobody exchanges. Collective."""
    for part, _ in zip(parts, range(PARTS // 4), strict=False):
        learner.learn(part)
    malt.barrier()
    start = time.perf_counter()
    for part, _ in zip(parts, range(PARTS), strict=False):
        learner.learn(part)
    took_s = (time.perf_counter() - start) / PARTS
    learner.finish()
    return float(statistics.mean(malt.allgather(took_s)))


def measured(learner: Learner, parts: Iterator[Order]) -> dict[str, float]:
    """What a simulation of this job must know. Collective."""
    latency_s, bandwidth = link()
    return {"latency_s": latency_s, "bandwidth": bandwidth, "compute_s": compute_s(learner, parts)}
