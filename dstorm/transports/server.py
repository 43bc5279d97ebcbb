"""A server of this process, for those who know its token: a thread for each caller, which first says who it is.

A caller's first line is the token and its number, as `hello` makes it. One that says anything else is sent away.
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
"""How long a caller may take to say who it is."""
_STOP_S = 5.0

Serve = Callable[[int, socket.socket], object]
"""What is done for a caller, in its thread, by its number and over its connection. That is closed afterwards, unless
what is returned is true."""


def hello(token: str, number: int) -> bytes:
    """What a caller of that number says first."""
    return f"{token} {number}\n".encode()


class AuthenticatedServer:
    """Listens from the start, on all addresses, and answers once it is started; both Local. `port`, `token`: what a
    caller must know. `name`: that of its threads."""

    def __init__(self, name: str) -> None:
        self.token = secrets.token_hex(_TOKEN_NBYTES)
        self._name = name
        self._listening = close_in_children(socket.create_server(("", 0), backlog=1024))
        self.port = int(self._listening.getsockname()[1])
        self._callers: list[tuple[socket.socket, threading.Thread]] = []
        self._accepting: threading.Thread | None = None

    def start(self, serve: Serve) -> None:
        """Answer, from here on, by `serve`. Local."""
        self._accepting = threading.Thread(target=self._accept, args=[serve], name=self._name, daemon=True)
        self._accepting.start()

    def send(self, data: bytes) -> None:
        """Send a few bytes to all who are connected, and wait for none. Local."""
        for caller, _ in list(self._callers):
            with contextlib.suppress(OSError):  # it has ended
                caller.send(data, socket.MSG_DONTWAIT)

    def stop(self) -> None:
        """Take no more callers; a second call does nothing. Local."""
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for one
        self._listening.close()
        if self._accepting is not None:
            self._accepting.join(_STOP_S)

    def drain(self, patience_s: float) -> None:
        """Once it is stopped: have callers served to the end of what they have said by now. Local."""
        end = time.monotonic() + patience_s
        for caller, _ in self._callers:
            with contextlib.suppress(OSError):  # it has ended
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
    """Read byte by byte: what comes after it is left to who serves the caller. Empty: it is too long."""
    line = b""
    while len(line) < _LONGEST_HELLO_NBYTES:
        byte = caller.recv(1)
        if byte in (b"", b"\n"):
            return line
        line += byte
    return b""
