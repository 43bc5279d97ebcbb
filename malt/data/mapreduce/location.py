"""Tells which ranks have the data of a chunk: those with the dataset, and those to which the chunk was sent before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dstorm import PeerLost, Transport
from malt.data.mapreduce.cache import Cache
from malt.data.mapreduce.chunk_errors import chunk_error, raise_first
from malt.data.mapreduce.chunks import Own, hash_of
from malt.session.world.agreement import exchange


class Location(NamedTuple):
    """The location of the chunks of a dataset, the same on all ranks."""

    ranks: list[int]
    """The live ranks, ascending."""
    owners: list[set[int]]
    """By chunk, the ranks that have its data."""


def claim(cache: Cache, own: Own | None) -> dict[str, Any]:
    """Return a description of the data of this rank: dataset, hash of all content hashes, chunks in its cache. Local.

    The hash is that of its own dataset, if it is remembered, or else of the dataset that it was last told of.
    """
    if own is None:
        return {"_kind": None, "_hash": hash_of(cache.digests), "_kept": cache.places()}
    return {"_kind": [own.count, *own.kind], "_hash": hash_of(own.digests), "_kept": []}


def located(transport: Transport, cache: Cache, own: Own | None, claims: Mapping[int, Mapping[str, Any]]) -> Location:
    """Return where the chunks are. Collective. `claims`: by live rank; the same on all.

    The content hashes are sent where a rank has another hash of them. Then cache.digests are those of the dataset.

    ValueError: datasets differ, or there is none. PeerLost: no rank that has it is left. The errors of slices. All are
    the same on all ranks.
    """
    while True:
        have = _alike(transport.size, {rank: one["_kind"] for rank, one in claims.items()})
        hashes = {claims[rank]["_hash"] for rank in claims if rank not in have} | {claims[have[0]]["_hash"]}
        if len(have) == len(claims) or (len(hashes) == 1 and "" not in hashes):
            break
        sent = exchange(transport, _digests(own, transport.rank) if transport.rank == have[0] and own else None)
        if digests := sent.get(have[0]):
            raise_first(digests[1:])
            cache.digests = digests[0]
        claims = exchange(transport, claim(cache, own))
    owners = [set(have) for _ in range(claims[have[0]]["_kind"][0])]
    for rank, one in claims.items():
        for place in one["_kept"] if rank not in have else ():
            owners[place].add(rank)
    return Location(list(claims), owners)


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
    """The content hashes of all chunks; or none, and why."""
    digests: list[str] = []
    for chunk in range(0 if own.digests else own.count):
        try:
            digests.append(own.digest(chunk))
        except Exception as error:  # of any type: all ranks raise it
            return [[], chunk_error(chunk, rank, error)]
    own.remember(own.digests or digests)
    return [own.digests]
