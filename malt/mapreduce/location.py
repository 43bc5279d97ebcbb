"""Which ranks have the data of which chunk: those with the dataset, and those to which chunks were sent before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dstorm import PeerLost, Transport
from malt.mapreduce.cache import Cache
from malt.mapreduce.chunkerrors import chunk_error, raise_first
from malt.mapreduce.chunks import Own
from malt.world.agreement import exchange


class Location(NamedTuple):
    """Where the chunks of a dataset are, the same on all ranks."""

    ranks: list[int]
    """The live ranks, ascending."""
    owners: list[set[int]]
    """By chunk, the ranks that have its data."""
    digests: list[str]
    """The content hashes of the chunks. Empty: all ranks have the dataset."""


def located(transport: Transport, cache: Cache, own: Own | None, kinds: Mapping[int, Any]) -> Location:
    """Where the chunks are. Collective.

    `kinds`: by live rank, the number of chunks and what its dataset is; None: it has none. ValueError: datasets differ,
    or there is none. PeerLost: no rank that has it is left. The errors of slices. All the same on all ranks.
    """
    while True:
        have = _alike(transport.size, kinds)
        owners = [set(have) for _ in range(kinds[have[0]][0])]
        if len(have) == len(kinds):
            return Location(list(kinds), owners, [])
        source = have[0]
        sent = exchange(transport, _digests(own, transport.rank) if transport.rank == source and own else None)
        if source in sent:
            break
        kinds = {rank: kinds[rank] for rank in sent}
    digests, error = sent[source]
    raise_first([error] if error else [])
    kept = exchange(transport, None if own else [place for place, one in enumerate(digests) if one in cache])
    for rank, places in kept.items():
        for place in places or ():
            owners[place].add(rank)
    return Location(list(kept), owners, digests)


def _alike(size: int, kinds: Mapping[int, Any]) -> list[int]:
    """The ranks that have the dataset, ascending."""
    have = [rank for rank, kind in kinds.items() if kind is not None]
    if not have:
        for rank in sorted(set(range(size)).difference(kinds)):
            raise PeerLost(rank, "malt.map_reduce: no other rank has the dataset")
        raise ValueError("malt.map_reduce: dataset is None on all ranks")
    for rank in have:
        if kinds[rank] != kinds[have[0]]:
            first, other = (", ".join(map(str, kinds[one][1:])) for one in (have[0], rank))
            raise ValueError(
                f"malt.map_reduce: a rank passes the whole dataset, or None: rank {have[0]} has {first}, rank {rank} "
                f"has {other}"
            )
    return have


def _digests(own: Own, rank: int) -> Sequence[Any]:
    """The content hashes of all chunks, and no error; or none, and why."""
    digests = own.known()
    for chunk in range(len(digests), own.count):
        try:
            digests.append(own.digest(chunk))
        except Exception as error:  # of any type: all ranks raise it
            return [], chunk_error(chunk, rank, error)
    own.remember(digests)
    return digests, None
