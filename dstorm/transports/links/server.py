"""A TCP server for callers that know its key (dstorm/transports/links/handshake.py). It has one thread for each caller.

One that does not show in time that it knows the key, whatever it sends, is disconnected, and nobody waits for it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from dstorm.membership.children import close_in_children
from dstorm.transports.links import calling, handshake
from dstorm.transports.links.calling import received

_HELLO_S = 10.0
"""How long a caller may take to show that it knows the key."""
_MOST_STRANGERS = 128
"""The most callers that have not done so yet. Where another comes, the first of them is disconnected."""
_STOP_S = 5.0
_NAP_S = 0.05
ANY_PORT = (0,) * 20
"""A port that the system chooses may be taken at another address."""


Serve = Callable[[int, socket.socket], object]
"""A function that serves one caller in its thread, given its number and its connection. The connection is closed
afterwards, unless the function returns something true."""


def call(address: tuple[str, int], key: str, name: str, number: int, patience_s: float) -> socket.socket:
    """A connection that `calling.call` makes. Children that are forked from now on close it."""
    return close_in_children(calling.call(address, key, name, number, patience_s))


class AuthenticatedServer:
    """A server that listens at `addresses` from its construction on, and answers once it is started. Local.

    Its callers know `port`, its name and `key`. `addresses`: of this host; without any, all. `name`: also that of its
    threads. `ports`: it takes the first that is free, by default any.
    """

    def __init__(self, name: str, key: str, addresses: Iterable[str] = (), ports: Sequence[int] = ANY_PORT) -> None:
        self._name, self._key = name, key
        self.refused: Callable[[str], object] = lambda address: None
        """Called with the address of each caller whose proof is wrong. Any thread may call it."""
        self._listening = _listen(list(addresses) or [""], ports)
        self.port = int(self._listening[0].getsockname()[1])
        self._strangers: deque[socket.socket] = deque()
        self._callers: list[tuple[socket.socket, threading.Thread, bytearray]] = []
        """Each with its thread, and what it has not taken so far."""
        self._changing = threading.Lock()
        self._accepting: threading.Thread | None = None
        self._stopped = False

    def start(self, serve: Serve) -> None:
        """Answer callers by `serve` from now on. Local."""
        self._accepting = threading.Thread(target=self._accept, args=[serve], name=self._name, daemon=True)
        self._accepting.start()

    def send(self, data: bytes, to: socket.socket | None = None) -> bool:
        """Send to all callers that are served, or to one of them, without waiting. Local. Any thread may call it.

        What a caller does not take now it gets with a later call, in this order. Returns whether they have taken all.
        """
        with self._changing:
            for caller, _, unsent in self._callers:
                unsent += data if to in (None, caller) else b""
                try:
                    del unsent[: caller.send(unsent, socket.MSG_DONTWAIT)]
                except BlockingIOError:  # it takes no more now
                    pass
                except OSError:  # it has ended
                    unsent.clear()
            return not any(unsent for _, _, unsent in self._callers)

    def stop(self) -> None:
        """Take no more callers. Local. A second call does nothing."""
        self._stopped = True
        for one in self._listening:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        if self._accepting is not None:
            self._accepting.join(_STOP_S)
        for one in self._listening:
            one.close()
        with self._changing:
            for stranger in self._strangers:
                shut(stranger)

    def drain(self, patience_s: float) -> None:
        """Serve the callers to the end of what they have sent by now, for at most `patience_s`. Local.

        The server must be stopped before.
        """
        end = time.monotonic() + patience_s
        for caller, _, _ in self._callers:
            with contextlib.suppress(OSError):  # the caller has ended
                caller.shutdown(socket.SHUT_RD)
        for _, thread, _ in self._callers:
            thread.join(max(0.0, end - time.monotonic()))

    def _accept(self, serve: Serve) -> None:
        with selectors.DefaultSelector() as selector:
            for one in self._listening:
                selector.register(one, selectors.EVENT_READ)
            while not self._stopped:
                for key, _ in selector.select():
                    try:
                        caller = close_in_children(key.fileobj.accept()[0])  # type: ignore[union-attr]
                    except OSError:  # it has gone, or this process has too many files open
                        time.sleep(0 if self._stopped else _NAP_S)
                        continue
                    self._greet(serve, caller)

    def _greet(self, serve: Serve, caller: socket.socket) -> None:
        """Have a caller answered in a thread of its own."""
        with self._changing:
            if len(self._strangers) >= _MOST_STRANGERS:
                shut(self._strangers[0])
                self._strangers.rotate(-1)
            self._strangers.append(caller)
        threading.Thread(target=self._answer, args=(serve, caller), name=self._name, daemon=True).start()

    def _answer(self, serve: Serve, caller: socket.socket) -> None:
        is_kept: object = False
        with contextlib.suppress(OSError):
            try:
                number = self._number_of(caller)
            finally:
                with self._changing:
                    self._strangers.remove(caller)
                    known = (caller, threading.current_thread(), bytearray())
            if number is None:
                self.refused(str(caller.getpeername()[0]))
            else:
                caller.settimeout(None)
                with self._changing:
                    self._callers = [*(one for one in self._callers if one[0].fileno() >= 0), known]
                is_kept = serve(number, caller)
        if not is_kept:
            caller.close()

    def _number_of(self, caller: socket.socket) -> int | None:
        """The number of a caller that knows the key, which is told so; None for another. OSError: it is too slow."""
        end = time.monotonic() + _HELLO_S
        challenge = handshake.new_challenge()
        caller.settimeout(_HELLO_S)
        caller.sendall(challenge)
        found = handshake.answered(self._key, self._name, challenge, received(caller, handshake.HELLO_NBYTES, end))
        if found is None:
            return None
        caller.sendall(found[1])
        return found[0]


def _listen(addresses: list[str], ports: Sequence[int]) -> list[socket.socket]:
    """Listening sockets with one of `ports` at all `addresses`. OSError: there is none."""
    for left, wanted in zip(reversed(range(len(ports))), ports, strict=True):
        made: list[socket.socket] = []
        try:
            for address in addresses:
                port = made[0].getsockname()[1] if made else wanted
                made.append(close_in_children(socket.create_server((address, port), backlog=1024)))
        except OSError:  # the port is taken at another address
            for one in made:
                one.close()
            if not left:
                raise
            continue
        for one in made:
            one.setblocking(False)
        return made
    raise AssertionError("unreachable")


def shut(connection: socket.socket) -> None:
    """Shut both directions, which wakes a thread that receives. Local."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
