"""The shapes of communication graphs, as tables of peers. Pure: each table is a function of its arguments alone.

A table holds the out-peers of each rank, ascending. A static graph has one table. A time-varying graph has one table
for each phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import isqrt

import numpy as np
import numpy.typing as npt

Peers = tuple[int, ...]  # ascending
Table = Sequence[Peers]  # by rank
Phases = tuple[Table, ...]


def circulant(size: int, offsets: Iterable[int]) -> Table:
    """Return the table where rank r sends to r + offset, modulo `size`, for each of `offsets`."""
    ranks, steps = tuple(range(size)), tuple(offsets)  # the tables of many ranks hold each number once
    return tuple(tuple(sorted(ranks[(rank + step) % size] for step in steps)) for rank in ranks)


def complete(size: int) -> Table:
    """Return the table where each rank sends to all others."""
    ranks = tuple(range(size))
    return tuple(ranks[:rank] + ranks[rank + 1 :] for rank in ranks)


def hypercube(size: int) -> Table:
    """Return the table where a rank sends to the ranks whose number differs in one bit.

    It is strongly connected also if `size` is no power of two: clearing one bit after the other leads to rank 0 through
    lower ranks, which all exist. The same path leads back.
    """
    bits = range(log2_ceil(size))
    return tuple(tuple(sorted(peer for bit in bits if (peer := rank ^ 1 << bit) < size)) for rank in range(size))


def torus(size: int) -> Table:
    """Return the table of a grid that wraps, as square as the factors of `size` allow: a rank sends to its four
    neighbours."""
    height = next(height for height in range(isqrt(size), 0, -1) if size % height == 0)
    width = size // height

    def peers(rank: int) -> Peers:
        """Return those of a rank, ascending."""
        row, column = divmod(rank, width)
        across = {row * width + (column + d) % width for d in (-1, 1)}
        along = {(row + d) % height * width + column for d in (-1, 1)}
        return tuple(sorted((across | along) - {rank}))

    return tuple(map(peers, range(size)))


def log2_ceil(size: int) -> int:
    """Return the base-2 logarithm of `size`, rounded up."""
    return (size - 1).bit_length()


# Each list of offsets begins with 1, which is a ring: so its first few offsets are strongly connected at every size.
def halton_offsets(size: int) -> list[int]:
    """Return the offsets 1 + floor(size * v), v = 0, 1/2, 1/4, 3/4, ... (van der Corput, base 2), each once."""
    # With v = reverse(i) / 2**bits, i < 2**bits, floor(size * v) takes every value, so every degree is possible. The
    # offsets of MALT-2 lack the + 1 (N/2, N/4, 3N/4, ...): they share a factor with N and connect only some ranks.
    bits = log2_ceil(size)
    reverse = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]
    return [o for o in dict.fromkeys(1 + (size * r >> bits) for r in reverse) if o < size]


def chord_offsets(size: int) -> list[int]:
    """Return the offsets 1, size / 2, size / 4, ..., rounded down, each once."""
    return list(dict.fromkeys([1, *(size >> k for k in range(1, size.bit_length()))])) if size > 1 else []


def exponential_offsets(size: int) -> list[int]:
    """Return the offsets 1, 2, 4, ... below `size`."""
    return [1 << k for k in range(log2_ceil(size))]


def one_peer(size: int) -> Phases:
    """Return one table for each offset of the exponential graph."""
    return tuple(circulant(size, [o]) for o in exponential_offsets(size)) or (((),),)


def pairs(size: int, seed: int) -> Phases:
    """Return tables of pairs that send to each other, each pair of ranks from random rings. No table comes twice.

    Each of ceil(log2 size) random rings through all ranks gives two tables: every other edge, and then the edges
    between these. With an odd number of ranks one has no peer in a table.
    """
    rng = np.random.default_rng(seed)
    tables: dict[Table, None] = {}
    for _ in range(log2_ceil(size)):
        ring = rng.permutation(size).tolist()
        for first in (0, 1):
            ends = ring[first:] + ring[:first]
            peer = {a: (b,) for pair in zip(ends[::2], ends[1::2], strict=False) for a, b in (pair, pair[::-1])}
            tables[tuple(peer.get(rank, ()) for rank in range(size))] = None
    return tuple(tables) or (((),),)


def star(size: int, members: Sequence[int]) -> Table:
    """Return the table where the first of `members` sends to the others, and they to it. Other ranks have no peers."""
    hub, leaves = members[0], tuple(members[1:])
    spokes = {hub: leaves} | dict.fromkeys(leaves, (hub,))
    return tuple(spokes.get(r, ()) for r in range(size))


def random_regular(size: int, degree: int, seed: int) -> Table:
    """Return a table of `degree` disjoint random permutations, the first of them one cycle through all ranks.

    If that would be more than half of all edges, the table is the complement of such permutations. The complement is
    strongly connected too: with out-degree + in-degree >= size any two ranks are peers or share a peer.
    """
    rng = np.random.default_rng(seed)
    complement = degree > (size - 1) // 2
    taken = np.eye(size, dtype=np.bool_)
    for k in range(size - 1 - degree if complement else degree):
        to = order = rng.permutation(size)
        if k == 0:
            to = np.empty_like(order)
            to[order] = np.roll(order, -1)
        _swap_clashes(to, taken, rng)
        taken[np.arange(size), to] = True
    chosen = ~taken if complement else taken & ~np.eye(size, dtype=np.bool_)
    return tuple(tuple(np.flatnonzero(row).tolist()) for row in chosen)


def _swap_clashes(to: npt.NDArray[np.int_], taken: npt.NDArray[np.bool_], rng: np.random.Generator) -> None:
    """Swap entries of the permutation `to` until none of its edges is `taken`."""
    ranks = np.arange(to.size)
    for r in ranks:
        if taken[r, to[r]]:
            # With m edges of each rank taken (its self-loop included) at most 2m - 1 partners are excluded. A partner
            # is left, as m <= (size - 1) // 2. A swap makes no new clash.
            partners = np.flatnonzero(~taken[r, to] & ~taken[ranks, to[r]])
            s = rng.choice(partners)
            to[r], to[s] = to[s], to[r]


def reverse(table: Table) -> Table:
    """Return the in-peers of each rank, ascending."""
    senders: list[list[int]] = [[] for _ in table]
    for r, peers in enumerate(table):
        for p in peers:
            senders[p].append(r)
    return tuple(map(tuple, senders))


def union(phases: Phases) -> Table:
    """Return the out-peers of each rank in any phase, ascending."""
    return phases[0] if len(phases) == 1 else tuple(map(joined, zip(*phases, strict=True)))


def joined(by_phase: Iterable[Peers]) -> Peers:
    """Return the peers of one rank in any phase, ascending."""
    first, *others = by_phase
    return tuple(sorted({*first, *chain.from_iterable(others)})) if others else first
