"""Measures a link and the compute of ranks, then trains along graphs; rank 0 prints a line of JSON for each.

    malt run -n 4 --hosts a:2,b:2 -m bench.hosts.planned PLAN

PLAN is a `Plan` of bench.hosts.training as JSON. `results` is the training, which simulated ranks make as well.
"""

from __future__ import annotations

import json
import socket
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import malt
from bench.hosts import ways
from bench.hosts.training import Plan, Rows, Run, parts, rows
from malt.models import linear

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


def compute_s(found: Rows, plan: Plan) -> float:
    """Seconds of a part while all ranks train at once, and nobody exchanges. Collective."""
    learner = ways.learner(ways.WAYS[plan.ways[0]], found.mine, found.width, found.eta0)
    each = parts(found, np.random.default_rng(malt.rank()))
    for part, _ in zip(each, range(PARTS // 4), strict=False):
        learner.learn(part)
    malt.barrier()
    start = time.perf_counter()
    for part, _ in zip(each, range(PARTS), strict=False):
        learner.learn(part)
    took_s = (time.perf_counter() - start) / PARTS
    learner.finish()
    return float(statistics.mean(malt.allgather(took_s)))


def results(found: Rows, plan: Plan) -> Iterator[dict[str, Any]]:
    """The result of each way, in turn, as often as the plan says; empty but on rank 0. Collective."""
    for seed in range(plan.rounds):
        for name in plan.ways:
            run = Run(ways.WAYS[name], found, plan, seed)
            run.train()
            yield {"way": name, "seed": seed, **run.result()}
            malt.barrier()


def main() -> None:
    plan = Plan(**json.loads(sys.argv[1]))
    malt.init()
    linear.compile_kernels()
    found = rows()
    latency_s, bandwidth = link()
    facts = {"latency_s": latency_s, "bandwidth": bandwidth, "compute_s": compute_s(found, plan)}
    if malt.rank() == 0:
        print(json.dumps(facts), flush=True)
    for result in results(found, plan):
        if malt.rank() == 0:
            print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
