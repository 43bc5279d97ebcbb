"""A TCP server that is authenticated by a token. It has one thread for each caller.

The first line of a caller is the token and its number, as `hello` makes it. A caller that sends anything else is
disconnected.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import threading
import time
from collections.abc import Callable

from dstorm.membership.children import close_in_children

_TOKEN_NBYTES = 16
_LONGEST_HELLO_NBYTES = 100
_HELLO_S = 30.0
"""How long a caller may take to send its first line."""
_STOP_S = 5.0

Serve = Callable[[int, socket.socket], object]
"""A function that serves one caller in its thread, given its number and its connection. The connection is closed
afterwards, unless the function returns something true."""


def hello(token: str, number: int) -> bytes:
    """The first line of the caller with this number."""
    return f"{token} {number}\n".encode()


class AuthenticatedServer:
    """A server that listens on all addresses from its construction on, and answers once it is started. Local.

    A caller must know `port` and `token`. `name`: the name of the threads.
    """

    def __init__(self, name: str) -> None:
        self.token = secrets.token_hex(_TOKEN_NBYTES)
        self._name = name
        self._listening = close_in_children(socket.create_server(("", 0), backlog=1024))
        self.port = int(self._listening.getsockname()[1])
        self._callers: list[tuple[socket.socket, threading.Thread]] = []
        self._accepting: threading.Thread | None = None

    def start(self, serve: Serve) -> None:
        """Answer callers by `serve` from now on. Local."""
        self._accepting = threading.Thread(target=self._accept, args=[serve], name=self._name, daemon=True)
        self._accepting.start()

    def send(self, data: bytes) -> None:
        """Send a few bytes to all callers that are connected, without waiting. Local."""
        for caller, _ in list(self._callers):
            with contextlib.suppress(OSError):  # the caller has ended
                caller.send(data, socket.MSG_DONTWAIT)

    def stop(self) -> None:
        """Take no more callers. Local. A second call does nothing."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listening.close()
        if self._accepting is not None:
            self._accepting.join(_STOP_S)

    def drain(self, patience_s: float) -> None:
        """Serve the callers to the end of what they have sent by now, for at most `patience_s`. Local.

        The server must be stopped before.
        """
        end = time.monotonic() + patience_s
        for caller, _ in self._callers:
            with contextlib.suppress(OSError):  # the caller has ended
                caller.shutdown(socket.SHUT_RD)
        for _, thread in self._callers:
            thread.join(max(0.0, end - time.monotonic()))

    def _accept(self, serve: Serve) -> None:
        with contextlib.suppress(OSError):
            while True:
                caller = close_in_children(self._listening.accept()[0])
                thread = threading.Thread(target=self._answer, args=(serve, caller), name=self._name, daemon=True)
                self._callers.append((caller, thread))
                thread.start()

    def _answer(self, serve: Serve, caller: socket.socket) -> None:
        is_kept: object = False
        with contextlib.suppress(OSError):
            caller.settimeout(_HELLO_S)
            token, _, number = _first_line(caller).partition(b" ")
            if hmac.compare_digest(token, self.token.encode()) and number.isdigit():
                caller.settimeout(None)
                is_kept = serve(int(number), caller)
        if not is_kept:
            caller.close()


def _first_line(caller: socket.socket) -> bytes:
    """The first line of a caller; b"" where it is too long. It is read byte by byte, as `Serve` reads the rest."""
    line = b""
    while len(line) < _LONGEST_HELLO_NBYTES:
        byte = caller.recv(1)
        if byte in (b"", b"\n"):
            return line
        line += byte
    return b""
