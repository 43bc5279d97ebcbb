"""Graphs that users describe, and the numbers that they name: checked. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dstorm.words import shown
from vol import arguments
from vol.graphs.builders import Table, reverse
from vol.graphs.connectivity import reached


def checked_table(peers: Mapping[Any, Iterable[Any]], size: int) -> Table:
    """Return the table of {rank: [ranks it sends to]}. Local.

    TypeError, ValueError: it is no strongly connected graph of `size` ranks.
    """
    by_rank = {checked_rank(rank, size): _checked_peers(rank, listed, size) for rank, listed in peers.items()}
    if size > 1:
        for rank in range(size):
            if not by_rank.get(rank):
                raise ValueError(f"rank {rank} has no out-peers: each of the {size} ranks must send to another one")
    table = tuple(by_rank.get(rank, ()) for rank in range(size))
    for way, between in ((table, "from rank 0 to rank {}"), (reverse(table), "from rank {} to rank 0")):
        if missed := set(range(size)) - set(reached(way, 0, set())):
            raise ValueError(f"the graph is not strongly connected: there is no way {between.format(min(missed))}")
    return table


def _checked_peers(rank: Any, listed: Iterable[Any], size: int) -> tuple[int, ...]:
    if not isinstance(listed, Iterable):
        raise TypeError(f"peers of rank {rank}: expected a list of ranks, got {shown(listed)}")
    checked = [checked_rank(peer, size) for peer in listed]
    if rank in checked:
        raise ValueError(f"rank {rank} sends to itself: self-loops are not allowed")
    twice = [peer for k, peer in enumerate(checked) if peer in checked[:k]]
    if twice:
        raise ValueError(f"rank {rank} lists peer {twice[0]} twice")
    return tuple(sorted(checked))


def checked_rank(value: Any, size: int) -> int:
    """Return `value` as a rank of `size`. Local. TypeError, ValueError: it is none."""
    rank = arguments.whole("rank", value, 0)
    if rank >= size:
        raise ValueError(f"rank {rank} is out of range: ranks are 0 to {size - 1}")
    return rank
