"""Connections between ranks of different hosts: where one can be reached, and who calls."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import time
from collections.abc import Collection, Mapping
from functools import partial
from typing import NamedTuple

from dstorm.errors import DeadlinePassed
from dstorm.membership.children import close_in_children
from dstorm.transports.server import AuthenticatedServer, hello

_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_NAME_NBYTES = 15
_RING_S = 2.0
"""How long an address may take to answer."""
_NAP_S = 0.02
_MOST_ADDRESSES = 16
_YES = b"Y"


class Endpoint(NamedTuple):
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
        self._server = AuthenticatedServer("malt dialing")
        self.number = Endpoint(own_addresses(), self._server.port, self._server.token)

    def connect(
        self, numbers: Mapping[int, Endpoint], deadline_s: float
    ) -> tuple[dict[int, socket.socket], dict[int, socket.socket]]:  # fmt: skip
        """A connection to, and one from, each rank of `numbers`, all of which do the same. Collective.

        DeadlinePassed: some could not be reached, or did not call. Who has called and ended since is left out.
        """
        end = time.monotonic() + deadline_s
        into: dict[int, socket.socket] = {}
        self._server.start(partial(_take, into, numbers.keys()))
        out: dict[int, socket.socket] = {}
        while missing := [rank for rank in numbers if rank not in out]:
            for rank in missing:
                with contextlib.suppress(OSError):
                    out[rank] = _call(numbers[rank], self._rank)
            _check(end, missing, deadline_s)
        while missing := [rank for rank in numbers if rank not in into and not _has_ended(out[rank])]:
            _check(end, missing, deadline_s)
            time.sleep(_NAP_S)
        self._server.stop()
        return {rank: out[rank] for rank in into}, into


def _take(into: dict[int, socket.socket], known: Collection[int], rank: int, caller: socket.socket) -> bool:
    """Take the connection of a rank that is `known` into `into`, unless it has given up meanwhile; whether it is."""
    caller.settimeout(_RING_S)
    if rank not in known or not caller.send(_YES) or caller.recv(1) != _YES:
        return False
    _prepare(caller)
    into[rank] = caller
    return True


def _call(number: Endpoint, rank: int) -> socket.socket:
    """A connection to the rank of that number. OSError: none, at none of its addresses."""
    for address in number.addresses:
        with contextlib.suppress(OSError):
            made = close_in_children(socket.create_connection((address, number.port), _RING_S))
            try:
                made.sendall(hello(number.token, rank))
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
            "TCP connections between hosts", dict.fromkeys(missing, 0), dict.fromkeys(missing, deadline_s)
        )
