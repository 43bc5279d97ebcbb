"""The addresses of this host. Agents are sent this module: it imports nothing of malt."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

_SIOCGIFADDR = 0x8915  # <linux/sockios.h>
_NAME_NBYTES = 15
_MOST_ADDRESSES = 16


def own_addresses() -> tuple[str, ...]:
    """The IPv4 addresses of this host without the loopback addresses, at most 16. Local."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # this interface has no address
                request = struct.pack("256s", name.encode()[:_NAME_NBYTES])
                found.append(socket.inet_ntoa(fcntl.ioctl(any_socket.fileno(), _SIOCGIFADDR, request)[20:24]))
    return tuple(address for address in found if not address.startswith("127."))[:_MOST_ADDRESSES]
