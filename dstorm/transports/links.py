"""Links: Puts to ranks of other hosts over TCP connections, in jobs that go on when a rank fails.

MPI's own Puts do not survive a failure over TCP. With Open MPI 5.0.11 (osc rdma, btl tcp, ULFM) a Put or a flush to a
failed rank may hang, and with it those to live ranks. A rank that has an answer to a failed one still in its queue
crashes: 7 jobs of 59 (btl_tcp_endpoint.c calls the callback that btl_base_am_rdma.c has set to NULL). Without ULFM the
first call that sees the closed connection ends the job.

Each rank has one connection to each rank of other hosts. It carries Puts, flushes and questions for memory there. Back
come one byte for each complete flush, heartbeats, and the memory that was asked for. When a process ends, the system
closes its connections. A rank that is marked failed is cut off, so that nothing arrives that it sends later. What has
arrived before is still written: `part` waits for that.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import numpy as np

from dstorm.errors import PeerLost
from dstorm.membership.heartbeat import HeartbeatTimeout
from dstorm.transport import Bytes, Places, Put
from dstorm.view import View

_HEAD = struct.Struct("<qqq")
"""Kind, offset and length. Kinds: PUT, followed by the bytes; FLUSH; CUT: the receiver was marked failed; GET, followed
by numbers of 64 bits: the length of a row, and which rows are asked for, counted from the offset."""
_PUT, _FLUSH, _CUT, _GET = range(4)
_DONE, _ALIVE, _DATA = b"D", b"A", b"G"
"""Answers of one byte; DATA is followed by the rows."""
_BUFFER_NBYTES = 1 << 16
_MOST_BUFFERS = 512
"""The most buffers of one system call; IOV_MAX is 1024."""
HEARTBEAT_S = 0.25
"""Period of the heartbeats, and of the check for those of others."""
_SETTLE_S = 1.0
"""How long a rank that was stopped for long waits until it has read which connections others have ended."""
_PART_S = 5.0
"""How long to wait until what has arrived is written. It is one socket buffer at most."""


class _Out:
    """The connection to one rank. Once it is `broken`, nothing is sent, and no call waits for the peer."""

    def __init__(self, peer: int, connection: socket.socket) -> None:
        self.peer = peer
        self.connection = connection
        self.lock = threading.Lock()
        self.broken = False
        self._waiting: list[bytes | Bytes] = []
        self._asked = self._done = 0

    def put(self, source: Bytes, offset: int) -> None:
        """Queue a Put, which the next `ask` sends."""
        with self.lock:
            self._waiting += (_HEAD.pack(_PUT, offset, source.nbytes), source)

    def ask(self) -> None:
        """Send the queued Puts, and a flush that the peer answers. The caller holds the lock."""
        waiting, self._waiting = [*self._waiting, _HEAD.pack(_FLUSH, 0, 0)], []
        if not self.broken:
            with self._noting_loss():
                _send_all(self.connection, waiting)
                self._asked += 1

    def is_done(self) -> bool:
        """Whether the peer has answered all flushes, or the connection is broken."""
        return self.broken or self._done >= self._asked

    def listen(self, flags: int = 0) -> bool:
        """Receive answers and heartbeats; return whether any came. The caller holds the lock."""
        received = b""
        if not self.broken:
            with self._noting_loss(), contextlib.suppress(BlockingIOError):
                received = self.connection.recv(_BUFFER_NBYTES, flags)
                self.broken = not received
        self._done += received.count(_DONE)
        return bool(received)

    def get(self, destination: Bytes, offset: int, places: Places, hear: Callable[[], None]) -> bool:
        """Send the queued Puts, ask for rows and receive them; return whether they came."""
        question = np.array([destination.nbytes // places.size, *places], np.int64).view(np.uint8)
        with self.lock:
            waiting, self._waiting = [*self._waiting, _HEAD.pack(_GET, offset, question.nbytes), question], []
            if not self.broken:
                with self._noting_loss():
                    _send_all(self.connection, waiting)
                    self._receive_rows(destination.reshape(-1).data, hear)
            return not self.broken

    def _receive_rows(self, rows: memoryview, hear: Callable[[], None]) -> None:
        while not self.broken and (answer := self.connection.recv(1)) != _DATA:
            self._done += answer == _DONE
            self.broken = not answer
        while rows.nbytes and not self.broken:
            count = self.connection.recv_into(rows)
            hear()
            rows = rows[count:]
            self.broken = not count

    def cut(self) -> None:
        """Cut the peer off, also while another thread waits for it."""
        self.broken = True
        if self.lock.acquire(blocking=False):  # else another thread is in the middle of a message
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
    """The links to the ranks of other hosts. All methods are One-sided where they do not say otherwise.

    Threads write what these ranks put into `memory`. `out`, `into`: a connection to and from each live rank of another
    host. `view`: the membership view, of the ranks of all hosts. `leave(why)`: ends this process when the others have
    gone on without it. `suspect_after_s`: the heartbeat timeout. `ended`: ranks of other hosts that have ended
    before.
    """

    def __init__(
        self, memory: Bytes, out: Mapping[int, socket.socket], into: Mapping[int, socket.socket],
        view: View, leave: Callable[[str], object], suspect_after_s: float | None = None,
        ended: Iterable[int] = (),
    ) -> None:  # fmt: skip
        self._memory, self._view, self._leave = memory, view, leave
        self._out = {peer: _Out(peer, connection) for peer, connection in out.items()}
        self._into = dict(into)
        self._answering = {peer: threading.Lock() for peer in into}
        """Held while rows are sent to a peer: nothing else may come between."""
        self._heartbeat_timeout = HeartbeatTimeout(out, time.monotonic(), suspect_after_s)
        self._ended = set(ended)
        """The ranks whose connections have ended. `find_failed` returns them."""
        self._closed = False
        self._receivers = {
            peer: threading.Thread(target=self._receive, args=(peer, connection), name="malt link", daemon=True)
            for peer, connection in into.items()
        }
        for receiver in self._receivers.values():
            receiver.start()
        threading.Thread(target=self._give_heartbeats, name="malt heartbeat", daemon=True).start()

    def put(self, source: Bytes, peer: int, offset: int) -> None:
        """As `Window.put`."""
        if peer in self._out:
            self._out[peer].put(source, offset)

    def prepared(self, source: Bytes, peer: int, offset: int) -> Put:
        """As `Window.prepared`."""
        return partial(self.put, source, peer, offset)

    def flush(self, peers: Iterable[int]) -> None:
        """As `Window.flush`. Puts to failed ranks are dropped."""
        ways = [self._out[peer] for peer in peers if peer in self._out]
        for way in ways:
            with way.lock:
                way.ask()
        for way in ways:
            while not way.is_done():
                with way.lock:
                    if not way.is_done() and way.listen():
                        self._hear(way.peer)

    def get(self, destination: Bytes, peer: int, offset: int, places: Places | None = None) -> None:
        """As `Window.get`."""
        wanted = np.zeros(1, np.int64) if places is None else places
        if destination.size and not (
            peer in self._out and self._out[peer].get(destination, offset, wanted, lambda: self._hear(peer))
        ):
            raise PeerLost(peer, "it failed before this rank had read its memory")

    def find_failed(self) -> Sequence[int]:
        """The ranks that have ended, or have given no heartbeat for the timeout. Local.

        [] while this process may itself have been stopped.
        """
        return list(self._ended) if self._heartbeat_timeout.is_awake(time.monotonic()) else []

    def cut(self, ranks: Iterable[int]) -> None:
        """Cut `ranks` off: what they send does not arrive any more. They are notified where that is possible."""
        for rank in ranks:
            if rank in self._out:
                self._out[rank].cut()
            if rank in self._into:
                _shut(self._into[rank])

    def part(self, ranks: Iterable[int]) -> None:
        """As `cut`. On return all that `ranks` have sent is written, and nothing more will be. Local."""
        ranks = set(ranks)
        self.cut(ranks)
        for rank in ranks & self._receivers.keys():
            self._receivers[rank].join(_PART_S)  # it reads only what has arrived already

    def close(self) -> None:
        """Stop giving and checking heartbeats, as the job is over. Local.

        The connections last until the process ends, as other ranks may still be in their last flush.
        """
        self._closed = True

    def _receive(self, peer: int, connection: socket.socket) -> None:
        """Write what `peer` puts into memory, until its connection ends."""
        with contextlib.suppress(OSError):
            for _ in _arrivals(connection, self._memory, lambda: self._hear(peer), self._answering[peer]):
                self._go(f"rank {peer} has heard nothing of it for too long: the others go on without it")
        self._ended.add(peer)

    def _hear(self, peer: int) -> None:
        self._heartbeat_timeout.heard(peer, time.monotonic())

    def _give_heartbeats(self) -> None:
        """Give heartbeats to all ranks, and cut off those that give none."""
        while not self._closed:
            time.sleep(HEARTBEAT_S)
            stopped_s = self._heartbeat_timeout.was_stopped(time.monotonic())
            if stopped_s is not None:
                self._go(f"it was stopped for {stopped_s:.1f} s: the others have gone on without it")
            if self._heartbeat_timeout.may_be_cut_off:
                self._leave_if_cut_off()
            for peer, connection in self._into.items():
                if peer not in self._ended and self._answering[peer].acquire(blocking=False):
                    with contextlib.suppress(OSError):
                        connection.send(_ALIVE, socket.MSG_DONTWAIT)
                    self._answering[peer].release()
            for way in self._out.values():
                if way.lock.acquire(blocking=False):  # else the thread that waits there receives them
                    if way.listen(socket.MSG_DONTWAIT):
                        self._hear(way.peer)
                    way.lock.release()
            self._cut_silent()

    def _leave_if_cut_off(self) -> None:
        """Leave if the larger part of the ranks has ended its connections while this rank was stopped.

        They may have failed, or have gone on without it. Ranks that cut it off cannot always notify it: its buffers may
        be full.
        """
        time.sleep(_SETTLE_S)
        ranks = set(self._view.alive)
        ended = ranks & self._ended
        if ended and self._heartbeat_timeout.must_leave(ended, ranks):
            self._go(f"ranks {sorted(ended)} have closed their connections while it was stopped: they may be going on")

    def _go(self, why: str) -> None:
        if not self._closed:
            self._leave(why)

    def _cut_silent(self) -> None:
        ranks = set(self._view.alive) - self._ended
        silent = self._heartbeat_timeout.silent(ranks, time.monotonic())
        if not silent:
            return
        if self._heartbeat_timeout.must_leave(silent, ranks):
            seconds = self._heartbeat_timeout.suspect_after_s
            self._go(
                f"it has heard nothing of ranks {sorted(silent)} for {seconds:g} s, who may be going on without it"
            )
        self.cut(silent)  # their receivers come to the end, and add them to those that have ended


def _send_all(connection: socket.socket, parts: Sequence[bytes | Bytes]) -> None:
    left = [one for one in (memoryview(part) for part in parts) if one.nbytes]  # type: ignore[arg-type]
    while left:
        sent = connection.sendmsg(left[:_MOST_BUFFERS])
        while left and sent >= left[0].nbytes:
            sent -= left.pop(0).nbytes
        if sent:
            left[0] = left[0][sent:]


def _arrivals(
    connection: socket.socket, memory: Bytes, hear: Callable[[], None], answering: threading.Lock
) -> Iterator[None]:  # fmt: skip
    """Write Puts into `memory`, answer flushes and send rows, until the connection ends. OSError.

    Yields where the peer has marked this rank failed. Calls `hear` whenever bytes have come. Holds `answering` while it
    sends rows.
    """
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
            with contextlib.suppress(OSError):  # the peer has failed, but what it has sent can still be read
                connection.send(_DONE)
        elif kind == _CUT:
            yield
        elif not (offset >= 0 and 0 <= nbytes <= memory.nbytes - (offset if kind == _PUT else 0)):
            return
        else:
            into = here[offset : offset + nbytes] if kind == _PUT else memoryview(bytearray(nbytes))
            ready = min(nbytes, end - start)
            into[:ready] = view[start : start + ready]
            start += ready
            while ready < nbytes:
                count = connection.recv_into(into[ready:])
                if not count:
                    return
                hear()
                ready += count
            if kind == _GET:
                with answering:
                    _send_all(connection, [_DATA, _rows(memory, offset, into)])


def _rows(memory: Bytes, offset: int, question: memoryview) -> Bytes:
    """The rows of `memory` that a GET asks for. A view where it is one row."""
    width, *places = question.cast("q").tolist()
    rows = memory[offset:][: (memory.nbytes - offset) // width * width].reshape(-1, width)
    found: Bytes = rows[places[0]] if len(places) == 1 else rows[places].reshape(-1)
    return found


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
