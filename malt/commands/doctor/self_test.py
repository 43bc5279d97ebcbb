"""The program of `malt doctor`'s job: its ranks measure one-sided transfers, over the windows that vectors use.

    malt run -n N -m malt.commands.doctor.self_test

Each rank prints LOADED first. Rank 0 prints one line, which `read` finds in the output of the job. Importing this
module loads no MPI.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import statistics
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from dstorm.transports import shm_space
from dstorm.transports.links.addresses import own_addresses

if TYPE_CHECKING:
    from dstorm.transports.mpi import MpiTransport, MpiWindow

PROGRAM = ("-m", "malt.commands.doctor.self_test")
"""What `malt run` is given."""

MARK = "malt examination: "
"""The beginning of the line. A record in JSON follows."""

LOADED = "malt examination begins"
"""The line that each rank prints once it has loaded this module."""

DEADLINE_S, _RANKS_A_CORE = 60, 20
"""How long a job may take, and how many ranks a core may have in this time: each loads MALT first."""

COMPUTE_S = 0.5
"""How long rank 1 computes without calling MPI."""

_HEAD_START_S = 0.05
"""How long rank 0 waits for rank 1 to begin to compute."""
_SMALL, _UPDATE, _LARGE = 8, 2**16, 2**23
"""The bytes of a Put that measures the latency; of one to a rank that computes; of one that measures the bandwidth."""
_SPAN, _SHARE_OF_SHM = 2**26, 4
"""The bytes that large Puts cover, which no small cache holds; at most 1/4 of the free /dev/shm."""
_CHUNK, _STREAM_S, _CONNECT_S = 2**20, 0.5, 5.0
"""The bytes of a piece of a TCP stream; how long it flows; how long a connection may take."""
_PUTS, _PUTS_S = 2_000, 0.3
"""A measurement ends after this number of Puts, or this time."""


@dataclass(frozen=True)
class Examination:
    """The measurements of the ranks. All times are of a Put + Flush from rank 0 to rank 1."""

    ranks: int
    """The size of MPI's world."""
    mpi: str
    """The MPI library, with its full version."""
    thread_level: str
    """The level that MPI_Init_thread provided: single, funneled, serialized or multiple."""
    hosts: list[str]
    """The host of each rank. Ranks with the same host can share memory."""
    processors: list[list[int]]
    """The processors that each rank may run on. Empty: unknown."""
    trouble: str = ""
    """The reason why no window could be opened. If it is set, nothing below was measured."""
    memory_model: str | None = None
    """The memory model of the window: unified or separate (MPI-4.1, 12.4)."""
    latency_us: float | None = None
    """The time for 8 bytes. It is None if there is one rank, as are the fields below."""
    bandwidth_gb_s: float | None = None
    """The bandwidth for 8 MiB, in 10^9 bytes per second."""
    landed_ms: float | None = None
    """The time for 64 KiB to a rank that computes for COMPUTE_S without calling MPI."""
    stream_gb_s: float | None = None
    """The bandwidth of a plain TCP stream, in 10^9 bytes per second. None: the ranks are on one host, or no TCP
    connection could be made."""


def read(output: str) -> Examination | None:
    """Return the record in the output of the job, or None without a mark. Pure.

    ValueError, TypeError: the text after the mark is no record.
    """
    _, mark, rest = output.partition(MARK)
    return Examination(**json.JSONDecoder().raw_decode(rest)[0]) if mark else None


def deadline_s(ranks: int, cores: int) -> float:
    """Return the seconds that a job of so many ranks may take. Pure."""
    return DEADLINE_S * max(1.0, ranks / (_RANKS_A_CORE * cores))


def main(most_s: int = 0) -> None:
    """Measure, and print the record on rank 0. Collective. A rank that runs longer than `most_s` is killed. 0: none."""
    signal.alarm(most_s)  # the kernel kills the process: inside MPI no signal handler would run
    print(LOADED, flush=True)
    from mpi4py import MPI

    from dstorm.transports.mpi import MpiTransport

    transport = MpiTransport(MPI.COMM_WORLD)
    found = _examine(transport)
    if transport.rank == 0:
        print(MARK + json.dumps(asdict(found)), flush=True)
    transport.barrier()
    transport.close()


def _examine(transport: MpiTransport) -> Examination:
    common = dict(
        ranks=transport.size, mpi=transport.library, thread_level=_thread_level(),
        hosts=list(transport.hosts), processors=_processors(transport),
    )  # fmt: skip
    span = _span(transport)
    try:
        window = transport.window(span if transport.rank == 1 else _UPDATE)
    except MemoryError as error:  # on all ranks alike
        return Examination(**common, trouble=str(error))  # type: ignore[arg-type]
    measures = _measure(transport, window, span) if transport.size > 1 else {}
    model = window.model
    window.free()
    return Examination(**common, memory_model=model, **measures)  # type: ignore[arg-type]


def _processors(transport: MpiTransport) -> list[list[int]]:
    mine = sorted(os.sched_getaffinity(0))
    return [json.loads(data) for data in transport.allgather(json.dumps(mine).encode())]


def _thread_level() -> str:
    from mpi4py import MPI

    levels = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }
    return levels[MPI.Query_thread()]


def _span(transport: MpiTransport) -> int:
    """The bytes that the Puts of the bandwidth cover on each side. Collective. They are fewer if /dev/shm is small."""
    mine = min(_SPAN, shm_space.free_nbytes() // _SHARE_OF_SHM)
    return max(min(map(int, transport.allgather(str(mine).encode()))) // _LARGE, 1) * _LARGE


def _measure(transport: MpiTransport, window: MpiWindow, span: int) -> dict[str, float | None]:
    """The fields of an Examination that need two ranks. They are valid on rank 0. Collective."""
    transport.barrier()
    latency_s = bandwidth_s = landed_s = 0.0
    if transport.rank == 0:
        latency_s, bandwidth_s = _median_put_s(window, _SMALL, _SMALL), _median_put_s(window, _LARGE, span)
    transport.barrier()
    if transport.rank == 0:
        time.sleep(_HEAD_START_S)
        landed_s = _put_s(window, np.ones(_UPDATE, np.uint8))
    elif transport.rank == 1:
        _compute(COMPUTE_S)
    transport.barrier()
    stream_gb_s = _stream_gb_s(transport) if transport.hosts[0] != transport.hosts[1] else None
    return dict(
        stream_gb_s=stream_gb_s,
        latency_us=round(latency_s * 1e6, 2),
        bandwidth_gb_s=round(_LARGE / max(bandwidth_s, 1e-9) / 1e9, 3),
        landed_ms=round(landed_s * 1e3, 3),
    )


def _stream_gb_s(transport: MpiTransport) -> float | None:
    """The bandwidth of a TCP stream from rank 0 to rank 1, valid on rank 0. None: no connection. Collective."""
    with socket.create_server(("", 0)) as server:
        ends = transport.allgather(json.dumps([own_addresses(), server.getsockname()[1]]).encode())
        addresses, port = json.loads(ends[1])
        if transport.rank == 1:
            server.settimeout(_CONNECT_S)
            with contextlib.suppress(OSError), server.accept()[0] as sender:
                _drain(sender)
        found = None
        for address in addresses if transport.rank == 0 else ():
            with contextlib.suppress(OSError), socket.create_connection((address, port), _CONNECT_S) as receiver:
                found = _send_gb_s(receiver)
                break
        transport.barrier()
        return found


def _send_gb_s(receiver: socket.socket) -> float:
    receiver.settimeout(DEADLINE_S)
    chunk, nbytes, start = bytes(_CHUNK), 0, time.perf_counter()
    while time.perf_counter() - start < _STREAM_S:
        receiver.sendall(chunk)
        nbytes += _CHUNK
    receiver.shutdown(socket.SHUT_WR)
    receiver.recv(1)  # all has arrived
    return round(nbytes / (time.perf_counter() - start) / 1e9, 3)


def _drain(sender: socket.socket) -> None:
    sender.settimeout(DEADLINE_S)
    buffer = bytearray(_CHUNK)
    while sender.recv_into(buffer):
        pass
    sender.sendall(b"Y")


def _median_put_s(window: MpiWindow, nbytes: int, span: int) -> float:
    """The median time of Puts of `nbytes` bytes. They cover `span` bytes, one place after the other, in turn."""
    source = np.ones(span, np.uint8)
    places = [slice(start, start + nbytes) for start in range(0, span, nbytes)]
    for place in places:
        _put_s(window, source[place], place.start)
    end = time.perf_counter() + _PUTS_S
    taken: list[float] = []
    while not taken or (len(taken) < _PUTS and time.perf_counter() < end):
        place = places[len(taken) % len(places)]
        taken.append(_put_s(window, source[place], place.start))
    return statistics.median(taken)


def _put_s(window: MpiWindow, source: np.ndarray[tuple[int], np.dtype[np.uint8]], offset: int = 0) -> float:
    start = time.perf_counter()
    window.put(source, 1, offset)
    window.flush([1])
    return time.perf_counter() - start


def _compute(seconds: float) -> None:
    """Keep a core busy, outside the GIL and without calling MPI, as a training loop in compiled code does."""
    numbers = np.ones(100_000)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        np.sqrt(numbers, out=numbers)


if __name__ == "__main__":
    main()
