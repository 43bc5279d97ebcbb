"""Connections between ranks of different hosts, and the endpoints at which ranks listen."""

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
from dstorm.transports.links.server import AuthenticatedServer, hello

_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_NAME_NBYTES = 15
_ANSWER_S = 2.0
"""How long an address may take to answer."""
_NAP_S = 0.02
_MOST_ADDRESSES = 16
_YES = b"Y"


class Endpoint(NamedTuple):
    """The addresses and the port at which a rank listens, and the token that a caller must send."""

    addresses: tuple[str, ...]
    port: int
    token: str


def own_addresses() -> tuple[str, ...]:
    """The IPv4 addresses of this host without the loopback addresses, at most 16. Local."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # this interface has no address
                request = struct.pack("256s", name.encode()[:_NAME_NBYTES])
                found.append(socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24]))
    return tuple(address for address in found if not address.startswith("127."))[:_MOST_ADDRESSES]


class Exchange:
    """The end of one rank at which connections are made. It listens at `endpoint` from the start. Local."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._server = AuthenticatedServer("malt connect")
        self.endpoint = Endpoint(own_addresses(), self._server.port, self._server.token)

    def connect(
        self, endpoints: Mapping[int, Endpoint], deadline_s: float
    ) -> tuple[dict[int, socket.socket], dict[int, socket.socket]]:  # fmt: skip
        """The connections to, and those from, the ranks of `endpoints`, by rank. Collective: they do the same.

        A rank that has ended before it called is left out. DeadlinePassed: a rank could not be reached, or did not
        call. It stops listening at the end.
        """
        end = time.monotonic() + deadline_s
        into: dict[int, socket.socket] = {}
        self._server.start(partial(_take, into, endpoints.keys()))
        out: dict[int, socket.socket] = {}
        while missing := [rank for rank in endpoints if rank not in out]:
            for rank in missing:
                with contextlib.suppress(OSError):
                    out[rank] = _call(endpoints[rank], self._rank)
            _check(end, missing, deadline_s)
        while missing := [rank for rank in endpoints if rank not in into and not _has_ended(out[rank])]:
            _check(end, missing, deadline_s)
            time.sleep(_NAP_S)
        self._server.stop()
        return {rank: out[rank] for rank in into}, into


def _take(into: dict[int, socket.socket], known: Collection[int], rank: int, caller: socket.socket) -> bool:
    """Add the connection of a rank to `into`; return whether it was added.

    It is not where the rank is not `known`, or has given up meanwhile.
    """
    caller.settimeout(_ANSWER_S)
    if rank not in known or not caller.send(_YES) or caller.recv(1) != _YES:
        return False
    _prepare(caller)
    into[rank] = caller
    return True


def _call(endpoint: Endpoint, rank: int) -> socket.socket:
    """A connection of `rank` to the rank that listens at `endpoint`. OSError: none of its addresses answers."""
    for address in endpoint.addresses:
        with contextlib.suppress(OSError):
            made = close_in_children(socket.create_connection((address, endpoint.port), _ANSWER_S))
            try:
                made.sendall(hello(endpoint.token, rank))
                if made.recv(1) == _YES:  # else another program answers there
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
    """Whether the other end has closed the connection."""
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
