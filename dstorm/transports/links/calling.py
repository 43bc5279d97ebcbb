"""The call of a server whose key this process knows (dstorm/transports/links/handshake.py).

malt/runner/reporting.py loads this module by its path, after that one, so it imports nothing else of dstorm.
"""

from __future__ import annotations

import socket
import time

from dstorm.transports.links.handshake import CHALLENGE_NBYTES, PROOF_NBYTES, Caller


class NotAdmitted(ConnectionResetError):
    """The server, or what listens in its place, has closed the connection of a caller whose proof it did not accept."""


def call(address: tuple[str, int], key: str, name: str, number: int, patience_s: float) -> socket.socket:
    """A connection of caller `number` to the server `name` at `address`. `patience_s`: the longest wait for a part.

    OSError: nobody answers there, or one that does not know the key. NotAdmitted, of these: one that has got a proof.
    """
    made = socket.create_connection(address, patience_s)
    try:
        # Else a line waits for the acknowledgement of the one before, and is lost where this process ends meanwhile.
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        caller = Caller(key, name, number)
        made.sendall(caller.hello(received(made, CHALLENGE_NBYTES, time.monotonic() + patience_s)))
        if caller.is_answered_by(_proof(made, time.monotonic() + patience_s)):
            return made
        raise ConnectionRefusedError("another server answers there")
    except OSError:
        made.close()
        raise


def _proof(made: socket.socket, end: float) -> bytes:
    try:
        return received(made, PROOF_NBYTES, end)
    except ConnectionResetError as error:
        raise NotAdmitted("the connection was closed once it had the proof of the key") from error


def received(connection: socket.socket, nbytes: int, end: float) -> bytes:
    """The next `nbytes` of a connection. OSError: they have not come by the time `end`. It keeps a timeout."""
    data = b""
    while len(data) < nbytes:
        connection.settimeout(max(0.001, end - time.monotonic()))
        part = connection.recv(nbytes - len(data))
        if not part:
            raise ConnectionResetError("the other end has closed the connection")
        data += part
    return data
