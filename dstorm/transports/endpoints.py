"""Connections between ranks of different hosts: where one can be reached, and who calls."""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import socket
import struct
import threading
import time
from collections.abc import Collection, Mapping
from typing import NamedTuple

from dstorm.errors import DeadlinePassed
from dstorm.transports.children import close_in_children

_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_NAME_NBYTES = 15
_RING_S = 2.0
"""How long an address may take to answer."""
_NAP_S = 0.02
_MOST_ADDRESSES = 16
_TOKEN_NBYTES = 16
_HELLO = struct.Struct(f"<{2 * _TOKEN_NBYTES}sq")
"""The token of the rank that is called, and who calls."""
_YES = b"Y"


class Number(NamedTuple):
    """Where a rank listens, and what a caller must know."""

    addresses: tuple[str, ...]
    port: int
    token: str


def own_addresses() -> tuple[str, ...]:
    """The IPv4 addresses of this host, but for that of itself. Local."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # one without an address
                request = struct.pack("256s", name.encode()[:_NAME_NBYTES])
                found.append(socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24]))
    return tuple(address for address in found if not address.startswith("127."))[:_MOST_ADDRESSES]


class Exchange:
    """Where one rank calls and is called. It listens from the start; close it when all have called."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._listening = close_in_children(socket.create_server(("", 0), backlog=1024))
        self.number = Number(own_addresses(), self._listening.getsockname()[1], secrets.token_hex(_TOKEN_NBYTES))

    def connect(
        self, numbers: Mapping[int, Number], deadline_s: float
    ) -> tuple[dict[int, socket.socket], dict[int, socket.socket]]:  # fmt: skip
        """A connection to, and one from, each rank of `numbers`, all of which do the same. Collective.

        DeadlinePassed: some could not be reached, or did not call. Who has called and ended since is left out.
        """
        end = time.monotonic() + deadline_s
        into: dict[int, socket.socket] = {}
        threading.Thread(target=self._answer, args=(into, numbers.keys()), name="malt dialing", daemon=True).start()
        out: dict[int, socket.socket] = {}
        while missing := [rank for rank in numbers if rank not in out]:
            for rank in missing:
                with contextlib.suppress(OSError):
                    out[rank] = _call(numbers[rank], self._rank)
            _check(end, missing, deadline_s)
        while missing := [rank for rank in numbers if rank not in into and not _has_ended(out[rank])]:
            _check(end, missing, deadline_s)
            time.sleep(_NAP_S)
        _shut_down(self._listening)
        return {rank: out[rank] for rank in into}, into

    def _answer(self, into: dict[int, socket.socket], known: Collection[int]) -> None:
        """Take calls until this rank listens no more; strangers are sent away."""
        with contextlib.suppress(OSError):
            while True:
                caller, _ = self._listening.accept()
                rank = self._identified(close_in_children(caller), known)
                if rank is None:
                    caller.close()
                else:
                    into[rank] = caller

    def _identified(self, caller: socket.socket, known: Collection[int]) -> int | None:
        try:
            caller.settimeout(_RING_S)
            token, rank = _HELLO.unpack(caller.recv(_HELLO.size, socket.MSG_WAITALL))
            if not secrets.compare_digest(token, self.number.token.encode()) or rank not in known:
                return None
            caller.send(_YES)
            if caller.recv(1) != _YES:  # it has given up
                return None
            _prepare(caller)
        except (OSError, struct.error):
            return None
        return int(rank)


def _call(number: Number, rank: int) -> socket.socket:
    """A connection to the rank of that number. OSError: none, at none of its addresses."""
    for address in number.addresses:
        with contextlib.suppress(OSError):
            made = close_in_children(socket.create_connection((address, number.port), _RING_S))
            try:
                made.sendall(_HELLO.pack(number.token.encode(), rank))
                if made.recv(1) == _YES:  # else it is somebody else
                    made.sendall(_YES)
                    _prepare(made)
                    return made
            except OSError:
                pass
            made.close()
    time.sleep(_NAP_S)
    raise OSError("nobody answers")


def _prepare(connection: socket.socket) -> None:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other end is closed."""
    try:
        return connection.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def _check(end: float, missing: Collection[int], deadline_s: float) -> None:
    if time.monotonic() > end:
        raise DeadlinePassed(
            "malt.init (TCP connections between hosts)", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s)
        )


def _shut_down(listening: socket.socket) -> None:
    """Also while another thread waits for a call."""
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)
    listening.close()
