"""The neighbours of a rank that are on other hosts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def of_other_hosts(hosts: Sequence[str], rank: int, peers: Iterable[int]) -> list[int]:
    """Those of `peers` that are on other hosts than `rank`. `hosts`: the host of each rank."""
    return [peer for peer in peers if hosts[peer] != hosts[rank]]
