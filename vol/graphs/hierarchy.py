"""The graph of ranks on several hosts: many edges inside a host, where messages cost little, and few between hosts.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dstorm.words import shown
from vol.graphs.builders import Table

Hosts = tuple[str, ...]
"""The name of the host of each rank."""


def checked_hosts(hosts: Any, size: int) -> Hosts:
    """Return `hosts` as a tuple. Local. TypeError, ValueError: they are not the names of the hosts of `size` ranks."""
    if isinstance(hosts, (str, bytes)) or not isinstance(hosts, Iterable):
        raise TypeError(f"hosts: expected a list of host names by rank, got {shown(hosts)}")
    names = tuple(hosts)
    for rank, name in enumerate(names):
        if not isinstance(name, str):
            raise TypeError(f"hosts: the name of the host of rank {rank} must be a string, got {shown(name)}")
        if not name.strip():
            raise ValueError(f"hosts: the name of the host of rank {rank} is empty")
    if len(names) != size:
        raise ValueError(f"hosts: expected a name for each rank, {size}, got {len(names)}")
    return names


def by_host(hosts: Hosts) -> list[list[int]]:
    """Return the ranks of each host, ascending; the hosts are ordered by their lowest rank. Local."""
    found: dict[str, list[int]] = {}
    for rank, name in enumerate(hosts):
        found.setdefault(name, []).append(rank)
    return list(found.values())


def hierarchical(hosts: Hosts, between: Table) -> Table:
    """Return the table where a rank sends to all of its host, and to some of the hosts that `between` gives its host.

    `between`: the out-peers of each host, by its place in `by_host`. Of two hosts the ranks with the same place in
    their hosts are peers. Where a host has fewer ranks than the other, its places count again from 0. So it is strongly
    connected if `between` is.
    """
    groups = by_host(hosts)
    peers = [set[int]() for _ in hosts]
    for place, ranks in enumerate(groups):
        for rank in ranks:
            peers[rank].update(ranks)
            peers[rank].discard(rank)
        for other in between[place]:
            for sender, receiver in _pairs(ranks, groups[other]):
                peers[sender].add(receiver)
    return tuple(tuple(sorted(those)) for those in peers)


def _pairs(ranks: Sequence[int], others: Sequence[int]) -> list[tuple[int, int]]:
    """Return the pairs of ranks with the same place in two hosts."""
    return [(ranks[k % len(ranks)], others[k % len(others)]) for k in range(max(len(ranks), len(others)))]
