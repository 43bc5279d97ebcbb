"""The two directions of a connection between ranks of different hosts, as bytes.

A rank sends Puts, flushes and questions over its `Outgoing`. The other end is an `Incoming`: it writes the Puts into
memory, and sends answers back over the same connection, also such as nobody has asked for.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dstorm.transport import Bytes, Places
from dstorm.transports.links.server import shut

HEAD = struct.Struct("<qqq")
"""Kind, offset and length. Kinds: PUT, followed by the bytes; FLUSH; GET, followed by numbers of 64 bits: the length of
a row, and which rows are asked for, counted from the offset; ASK, whose offset is the number of a question; LEAVE: the
receiver is asked to end."""
PUT, FLUSH, GET, ASK, LEAVE = range(5)
DONE, ALIVE, DATA, CUT, END, STATE, VOTE = (bytes([letter]) for letter in b"DAGCESV")
"""Answers of one byte. DATA is followed by rows, STATE and VOTE by a length and so many bytes. CUT: the others go on
without the receiver. END: the sender ends in order."""
_LENGTH = struct.Struct("<I")
BUFFER_NBYTES = 1 << 16
_MOST_BUFFERS = 512
"""The most buffers of one system call; IOV_MAX is 1024."""
_TAKES_MS = 250
"""How long to wait until a peer takes more of what is sent, before it is listened to."""

Note = Callable[[bytes, bytes], object]
"""A function that is given the kind of an answer that nobody waits for, and what follows it."""


def framed(kind: bytes, body: bytes) -> bytes:
    """An answer of kind STATE or VOTE."""
    return kind + _LENGTH.pack(len(body)) + body


class Outgoing:
    """The connection to `peer`. Once it is `broken`, nothing is sent, and no call waits for the peer.

    `hear()`, `note(kind, body)`: called whenever bytes have come, and for each answer that is no end of a flush, in the
    thread that receives it.
    """

    def __init__(self, peer: int, connection: socket.socket, hear: Callable[[], object], note: Note) -> None:
        self.peer = peer
        self.connection = connection
        self.lock = threading.Lock()
        self.broken = False
        self.is_evicted = False
        """Whether this rank asks the peer to end."""
        self._hear, self._note = hear, note
        self._waiting: list[bytes | Bytes] = []
        self._asked = self._done = 0
        self._rest = b""
        """What has come of an answer that is not whole yet."""

    def put(self, source: Bytes, offset: int) -> None:
        """Queue a Put, which the next `ask` sends."""
        with self.lock:
            self._waiting += (HEAD.pack(PUT, offset, source.nbytes), source)

    def ask(self) -> None:
        """Send the queued Puts, and a flush that the peer answers. The caller holds the lock."""
        waiting, self._waiting = [*self._waiting, HEAD.pack(FLUSH, 0, 0)], []
        if not self.broken:
            with self._noting_loss():
                self._send(waiting)
                self._asked += 1

    def question(self, number: int) -> None:
        """Ask the peer to confirm this rank: it answers by a VOTE with this number. The caller holds the lock."""
        if not self.broken:
            with self._noting_loss():
                self._send([HEAD.pack(ASK, number, 0)])

    def try_dismiss(self) -> None:
        """Ask the peer to end, if that can be sent at once. A thread of the peer's hears it, whatever the others do."""
        if self.lock.acquire(blocking=False):
            if not self.broken:
                with self._noting_loss(), contextlib.suppress(BlockingIOError):
                    sent = self.connection.send(HEAD.pack(LEAVE, 0, 0), socket.MSG_DONTWAIT)
                    self.broken = sent < HEAD.size  # nothing can follow half a head
            self.lock.release()

    def is_done(self) -> bool:
        """Return whether the peer has answered all flushes, or the connection is broken."""
        return self.broken or self._done >= self._asked

    def listen(self, flags: int = 0) -> bool:
        """Receive answers and heartbeats; return whether any came. The caller holds the lock."""
        received = b""
        if not self.broken:
            with self._noting_loss(), contextlib.suppress(BlockingIOError):
                received = self.connection.recv(BUFFER_NBYTES, flags)
                self.broken = not received
        if received:
            self._hear()
        self._take(received)
        return bool(received)

    def get(self, destination: Bytes, offset: int, places: Places) -> bool:
        """Send the queued Puts, ask for rows and receive them; return whether they came."""
        question = np.array([destination.nbytes // places.size, *places], np.int64).view(np.uint8)
        with self.lock:
            waiting, self._waiting = [*self._waiting, HEAD.pack(GET, offset, question.nbytes), question], []
            if not self.broken:
                with self._noting_loss():
                    self._send(waiting)
                    self._receive_rows(destination.reshape(-1).data)
            return not self.broken

    def break_off(self) -> None:
        """Send and receive nothing more, also where another thread is in the middle of it.

        Answers that have come are still noted where no other thread is at it.
        """
        if self.lock.acquire(blocking=False):
            while self.listen(socket.MSG_DONTWAIT):
                pass
            self.lock.release()
        self.broken = True
        shut(self.connection)

    def _send(self, parts: Sequence[bytes | Bytes]) -> None:
        """Send all `parts`. A peer that takes them slowly gives heartbeats, which are heard meanwhile."""
        _send_all(self.connection, parts, lambda: self.listen(socket.MSG_DONTWAIT))

    def _receive_rows(self, rows: memoryview) -> None:
        while not self.broken and self._rest[:1] != DATA:
            self.listen()
        ready = min(rows.nbytes, len(self._rest) - 1)
        if self._rest[:1] == DATA:
            rows[:ready] = self._rest[1 : 1 + ready]
            rows, rest = rows[ready:], self._rest[1 + ready :]
            self._rest = b""
        while rows.nbytes and not self.broken:
            count = self.connection.recv_into(rows)
            self._hear()
            rows = rows[count:]
            self.broken = not count
        if not self.broken:
            self._take(rest)

    def _take(self, received: bytes) -> None:
        """Note the answers that are whole. The rest stays, and so do rows."""
        buffer = self._rest + received if self._rest else received
        place = 0
        while place < len(buffer) and (kind := buffer[place : place + 1]) != DATA:
            end = place + 1
            if kind in (STATE, VOTE):
                start = end + _LENGTH.size
                end = start + (_LENGTH.unpack_from(buffer, end)[0] if len(buffer) >= start else 0)
                if len(buffer) < max(start, end):
                    break
                self._note(kind, buffer[start:end])
            elif kind == DONE:
                self._done += 1
            elif kind != ALIVE:
                self._note(kind, b"")
            place = end
        self._rest = buffer[place:]

    @contextlib.contextmanager
    def _noting_loss(self) -> Iterator[None]:
        try:
            yield
        except BlockingIOError:
            raise
        except OSError:
            self.broken = True


class Incoming:
    """The connection from a peer, over which it is answered."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._lock = threading.Lock()
        """Held while an answer is sent: no other may come between its parts."""
        self._late = b""
        """The end of an answer that the system did not take at once."""

    def answer(self, *parts: bytes | Bytes) -> None:
        """Send an answer. OSError."""
        with self._lock:
            late, self._late = self._late, b""
            _send_all(self.connection, [late, *parts])

    def try_answer(self, answer: bytes, patience_s: float = 0.0) -> bool:
        """Send an answer without waiting, all of it or nothing; return whether it was sent, or will be.

        `patience_s`: how long another thread may be at it: for a moment with a heartbeat, for long with rows.
        """
        if not self._lock.acquire(timeout=patience_s):
            return False
        try:
            if self._late:
                self._late = self._late[self._send(self._late) :]
            if self._late:
                return False
            sent = self._send(answer)
            self._late = answer[sent:] if sent else b""
            return bool(sent)
        finally:
            self._lock.release()

    def _send(self, data: bytes) -> int:
        with contextlib.suppress(OSError):  # it takes no more, or has ended
            return self.connection.send(data, socket.MSG_DONTWAIT)
        return 0

    def serve(
        self, memory: Bytes, hear: Callable[[], None], confirm: Callable[[int], bytes], leave: Callable[[], object]
    ) -> None:  # fmt: skip
        """Write Puts into `memory`, and answer flushes and questions, until the connection ends. OSError.

        Calls `hear` whenever bytes have come, and `leave` where this rank is asked to end. confirm(number): the answer
        to question `number`.
        """
        arrivals = _Arrivals(self.connection, hear)
        while (head := arrivals.head()) is not None:
            kind, offset, nbytes = head
            if kind in (FLUSH, ASK):
                with contextlib.suppress(OSError):  # the peer has failed, but what it has sent can still be read
                    self.answer(DONE if kind == FLUSH else framed(VOTE, confirm(offset)))
                continue
            if kind == LEAVE:
                leave()
                continue
            if offset < 0 or nbytes < 0 or (kind == PUT and offset + nbytes > memory.nbytes):
                return
            into = memory.data[offset : offset + nbytes] if kind == PUT else memoryview(bytearray(nbytes))
            if not arrivals.fill(into):
                return
            if kind == GET:
                self.answer(DATA, _rows(memory, offset, into))


class _Arrivals:
    """The bytes that arrive over a connection. Calls `hear` whenever bytes have come."""

    def __init__(self, connection: socket.socket, hear: Callable[[], None]) -> None:
        self._connection, self._hear = connection, hear
        self._buffer = memoryview(bytearray(BUFFER_NBYTES))
        self._start = self._end = 0

    def head(self) -> tuple[int, int, int] | None:
        """The next head; None: the connection has ended. OSError."""
        while self._end - self._start < HEAD.size:
            self._buffer[: self._end - self._start] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, self._end - self._start
            count = self._connection.recv_into(self._buffer[self._end :])
            if not count:
                return None
            self._hear()
            self._end += count
        self._start += HEAD.size
        kind, offset, nbytes = HEAD.unpack_from(self._buffer, self._start - HEAD.size)
        return kind, offset, nbytes

    def fill(self, into: memoryview) -> bool:
        """Fill `into` with what comes next; return whether it came. OSError."""
        ready = min(into.nbytes, self._end - self._start)
        into[:ready] = self._buffer[self._start : self._start + ready]
        self._start += ready
        while ready < into.nbytes:
            count = self._connection.recv_into(into[ready:])
            if not count:
                return False
            self._hear()
            ready += count
        return True


def _send_all(
    connection: socket.socket, parts: Sequence[bytes | Bytes], meanwhile: Callable[[], object] = int
) -> None:  # fmt: skip
    """Send all `parts`; call meanwhile() again and again while the peer has not taken all. OSError."""
    left = [one for one in (memoryview(part) for part in parts) if one.nbytes]  # type: ignore[arg-type]
    while left:
        sent = 0
        with contextlib.suppress(BlockingIOError):  # it takes no more at the moment
            sent = connection.sendmsg(left[:_MOST_BUFFERS], (), socket.MSG_DONTWAIT)
        while left and sent >= left[0].nbytes:
            sent -= left.pop(0).nbytes
        if left:
            left[0] = left[0][sent:]
            _await_room(connection)
            meanwhile()


def _await_room(connection: socket.socket) -> None:
    """Return once the peer takes more, or after a while. Local."""
    room = select.poll()
    with contextlib.suppress(ValueError):  # another thread has closed it
        room.register(connection, select.POLLOUT)
        room.poll(_TAKES_MS)


def _rows(memory: Bytes, offset: int, question: memoryview) -> Bytes:
    """The rows of `memory` that a GET asks for. A view where it is one row."""
    asked = np.frombuffer(question, np.int64)
    width, places = int(asked[0]), asked[1:]
    rows = memory[offset:][: (memory.nbytes - offset) // width * width].reshape(-1, width)
    found: Bytes = rows[places[0]] if len(places) == 1 else rows[places].reshape(-1)
    return found
