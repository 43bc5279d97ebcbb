"""Where the neighbours of a rank are: on its host, or on others. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from dstorm.transport import Transport


def of_other_hosts(transport: Transport, peers: Iterable[int]) -> list[int]:
    """Those of `peers` that are on other hosts than this rank."""
    hosts, here = transport.hosts, transport.hosts[transport.rank]
    return [peer for peer in peers if hosts[peer] != here]
