"""Puts to ranks of other hosts, over TCP connections of our own, for jobs whose ranks may die.

MPI's do not outlive a death over TCP. With Open MPI 5.0.11 (osc rdma, btl tcp, ULFM) a Put or a flush towards the
dead may hang, and with it those towards the living. A survivor whose answer to the dead still waits in its queue
crashes: 7 jobs of 59 (btl_tcp_endpoint.c calls the callback that btl_base_am_rdma.c has set to NULL). And without ULFM
the first call that sees the closed connection ends the job.

From each rank one connection goes to each rank of other hosts. It carries Puts and flushes there, a byte back for each
flush that is complete, and others that say no more than that the rank lives. The system closes the connections of a
process that ends; whoever is given up is cut off, so that nothing it still sends can arrive. What has arrived before is
still written: `part` waits for that.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from dstorm.membership.heartbeat import HeartbeatTimeout
from dstorm.membership.view import View
from dstorm.transport import Bytes, Put

_HEAD = struct.Struct("<qqq")
"""What follows: PUT, to an offset, so many bytes; FLUSH; or CUT: you are given up."""
_PUT, _FLUSH, _CUT = range(3)
_DONE, _ALIVE = b"D", b"A"
_BUFFER_NBYTES = 1 << 16
_MOST_BUFFERS = 512
"""Of one system call; IOV_MAX is 1024."""
HEARTBEAT_S = 0.25
"""How often a rank says that it lives, and looks whom it has heard of."""
_PART_S = 5.0
"""How long what has arrived may take to be written: it is a system's buffer at most."""


class _Out:
    """The way to one rank. Broken: nothing goes there any more, and nothing waits for it."""

    def __init__(self, peer: int, connection: socket.socket) -> None:
        self.peer = peer
        self.connection = connection
        self.lock = threading.Lock()
        self.broken = False
        self._waiting: list[bytes | Bytes] = []
        self._asked = self._done = 0

    def put(self, source: Bytes, offset: int) -> None:
        """Let it be sent with the next `ask`."""
        with self.lock:
            self._waiting += (_HEAD.pack(_PUT, offset, source.nbytes), source)

    def ask(self) -> None:
        """Send what waits, and ask to be told when it is there. The lock is held."""
        waiting, self._waiting = [*self._waiting, _HEAD.pack(_FLUSH, 0, 0)], []
        if not self.broken:
            with self._noting_loss():
                _send_all(self.connection, waiting)
                self._asked += 1

    def is_done(self) -> bool:
        """Whether all that was asked for is there, or the peer is lost."""
        return self.broken or self._done >= self._asked

    def listen(self, flags: int = 0) -> bool:
        """Take what was said of flushes; whether anything was said. The lock is held."""
        reports = b""
        if not self.broken:
            with self._noting_loss(), contextlib.suppress(BlockingIOError):
                reports = self.connection.recv(_BUFFER_NBYTES, flags)
                self.broken = not reports
        self._done += reports.count(_DONE)
        return bool(reports)

    def cut(self) -> None:
        """Part from the peer, also while another thread waits for it."""
        self.broken = True
        if self.lock.acquire(blocking=False):  # else it is in the middle of a message
            with contextlib.suppress(OSError):
                self.connection.send(_HEAD.pack(_CUT, 0, 0), socket.MSG_DONTWAIT)
            self.lock.release()
        _shut(self.connection)

    @contextlib.contextmanager
    def _noting_loss(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError:
            self.broken = True


class Links:
    """The ways to the ranks of other hosts, and what comes from them into `memory`, by threads. *One-sided*, all of it.

    `out`, `into`: a connection to and from each of those ranks that live. `view`: who does, on this host, too.
    `find_failed`: ranks of other hosts that have ended before.
    `leave(why)` ends this process: the others go on without it.
    """

    def __init__(
        self, memory: Bytes, out: Mapping[int, socket.socket], into: Mapping[int, socket.socket],
        view: View, leave: Callable[[str], object], suspect_after_s: float | None = None,
        find_failed: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self._memory, self._view, self._leave = memory, view, leave
        self._out = {peer: _Out(peer, connection) for peer, connection in out.items()}
        self._into = dict(into)
        self._heartbeat_timeout = HeartbeatTimeout(out, time.monotonic(), suspect_after_s)
        self._ended = set(find_failed)
        """Whose connections have ended: found here, and for the view to say."""
        self._closed = False
        self._receivers = {
            peer: threading.Thread(target=self._receive, args=(peer, connection), name="malt link", daemon=True)
            for peer, connection in into.items()
        }
        for receiver in self._receivers.values():
            receiver.start()
        threading.Thread(target=self._pulse, name="malt pulse", daemon=True).start()

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`."""
        if peer in self._out:
            self._out[peer].put(source, offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`."""
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Iterable[int]) -> None:
        """As `Window.flush`; what was put to a rank that is lost is forgotten."""
        ways = [self._out[peer] for peer in peers if peer in self._out]
        for way in ways:
            with way.lock:
                way.ask()
        for way in ways:
            while not way.is_done():
                with way.lock:
                    if not way.is_done() and way.listen():
                        self._hear(way.peer)

    def find_failed(self) -> Sequence[int]:
        """Those whose processes have ended, or of whom nothing was heard for too long."""
        return list(self._ended) if self._heartbeat_timeout.is_awake(time.monotonic()) else []

    def cut(self, ranks: Iterable[int]) -> None:
        """Part from `ranks`: what they send does not arrive any more, and they are told where that can be."""
        for rank in ranks:
            if rank in self._out:
                self._out[rank].cut()
            if rank in self._into:
                _shut(self._into[rank])

    def part(self, ranks: Iterable[int]) -> None:
        """As `cut`; on return nothing that `ranks` have sent is written any more. Local."""
        ranks = set(ranks)
        self.cut(ranks)
        for rank in ranks & self._receivers.keys():
            self._receivers[rank].join(_PART_S)  # it reads no more than what is here already

    def close(self) -> None:
        """The job is over: nobody is watched any more. The connections last until the process ends, as others may still
        be at their last flush. Local."""
        self._closed = True

    def _receive(self, peer: int, connection: socket.socket) -> None:
        """Let what `peer` puts into memory, until it ends."""
        with contextlib.suppress(OSError):
            for _ in _arrivals(connection, self._memory, lambda: self._hear(peer)):
                self._go(f"rank {peer} has heard nothing of it for too long: the others go on without it")
        self._ended.add(peer)

    def _hear(self, peer: int) -> None:
        self._heartbeat_timeout.heard(peer, time.monotonic())

    def _pulse(self) -> None:
        """Say that this rank lives, and see to those of whom nothing is heard."""
        while not self._closed:
            time.sleep(HEARTBEAT_S)
            stopped_s = self._heartbeat_timeout.was_stopped(time.monotonic())
            if stopped_s is not None:
                self._go(f"it has stood still for {stopped_s:.1f} s: the others have gone on without it")
            for peer, connection in self._into.items():
                if peer not in self._ended:
                    with contextlib.suppress(OSError):
                        connection.send(_ALIVE, socket.MSG_DONTWAIT)
            for way in self._out.values():
                if way.lock.acquire(blocking=False):  # else whoever waits there hears of it
                    if way.listen(socket.MSG_DONTWAIT):
                        self._hear(way.peer)
                    way.lock.release()
            self._give_up_the_unresponsive()

    def _go(self, why: str) -> None:
        if not self._closed:
            self._leave(why)

    def _give_up_the_unresponsive(self) -> None:
        ranks = set(self._view.alive) - self._ended
        silent = self._heartbeat_timeout.silent(ranks, time.monotonic())
        if not silent:
            return
        if self._heartbeat_timeout.must_leave(silent, ranks):
            seconds = self._heartbeat_timeout.suspect_after_s
            self._go(
                f"it has heard nothing of ranks {sorted(silent)} for {seconds:g} s, who may be going on without it"
            )
        self.cut(silent)  # whoever reads there comes to the end, and notes it as gone


def _send_all(connection: socket.socket, parts: Sequence[bytes | Bytes]) -> None:
    left = [one for one in (memoryview(part) for part in parts) if one.nbytes]  # type: ignore[arg-type]
    while left:
        sent = connection.sendmsg(left[:_MOST_BUFFERS])
        while left and sent >= left[0].nbytes:
            sent -= left.pop(0).nbytes
        if sent:
            left[0] = left[0][sent:]


def _arrivals(connection: socket.socket, memory: Bytes, hear: Callable[[], None]) -> Iterator[None]:
    """Write into `memory` what is put, and answer flushes; yields where the peer has given this rank up. Returns at the
    end of the connection. OSError."""
    here = memory.data
    buffer = bytearray(_BUFFER_NBYTES)
    view = memoryview(buffer)
    start = end = 0
    while True:
        while end - start < _HEAD.size:
            view[: end - start] = bytes(view[start:end])
            start, end = 0, end - start
            count = connection.recv_into(view[end:])
            if not count:
                return
            hear()
            end += count
        kind, offset, nbytes = _HEAD.unpack_from(buffer, start)
        start += _HEAD.size
        if kind == _FLUSH:
            with contextlib.suppress(OSError):  # it has died; what it has sent is still here to be read
                connection.send(_DONE)
        elif kind == _CUT:
            yield
        elif not 0 <= offset <= offset + nbytes <= memory.nbytes:
            return
        else:
            ready = min(nbytes, end - start)
            here[offset : offset + ready] = view[start : start + ready]
            start += ready
            while ready < nbytes:
                count = connection.recv_into(here[offset + ready : offset + nbytes])
                if not count:
                    return
                hear()
                ready += count


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
