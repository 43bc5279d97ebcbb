"""Bytes between ranks: what each has sent to, or read from, each other one, and what it has moved in all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import malt

Edges = Mapping[int, int]
"""Bytes that a rank has sent to each peer, or read from its memory."""


def edges(vectors: Iterable[Any]) -> Edges:
    """The edges of this rank so far, of sharded vectors: pushes, pulls, and the scalars that all ranks get. Local."""
    found = {peer: 0 for peer in range(malt.size()) if peer != malt.rank()}
    for statistics in (one.statistics() for one in vectors):
        scalars = statistics.bytes_sent - sum(edge.bytes_sent for edge in statistics.peers.values())
        for peer, edge in statistics.peers.items():
            found[peer] += edge.bytes_sent + edge.bytes_read
        for peer in found:
            found[peer] += scalars // len(found)  # each goes to all others
    return found


def since(before: Edges, after: Edges) -> Edges:
    """What was moved between the two. Pure."""
    return {peer: nbytes - before.get(peer, 0) for peer, nbytes in after.items()}


def gathered(own: Edges) -> list[Edges]:
    """The edges of all ranks, by rank. Collective."""
    rows = malt.allgather([own.get(peer, 0) for peer in range(malt.size())])
    return [{peer: nbytes for peer, nbytes in enumerate(row) if peer != rank} for rank, row in enumerate(rows)]


def moved(everyone: Sequence[Edges]) -> list[int]:
    """By rank, the bytes that it has sent and received. Pure. `everyone`: the edges of all ranks, by rank."""
    return [sum(own.values()) + sum(theirs.get(rank, 0) for theirs in everyone) for rank, own in enumerate(everyone)]
