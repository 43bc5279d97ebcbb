"""The shapes of communication graphs: tables of peers, each a function of its arguments alone. Pure.

A table lists the out-peers of each rank, ascending. A static graph has one table, a time-varying one a table a phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isqrt

import numpy as np
import numpy.typing as npt

Table = tuple[tuple[int, ...], ...]  # peers by rank, ascending
Phases = tuple[Table, ...]


def log2_ceil(size: int) -> int:
    return (size - 1).bit_length()


def circulant(size: int, offsets: Iterable[int]) -> Table:
    offsets = tuple(offsets)
    return tuple(tuple(sorted((r + o) % size for o in offsets)) for r in range(size))


# The lists of offsets begin with 1, a ring of itself: so any first few of them are strongly connected at every size.
def halton_offsets(size: int) -> list[int]:
    # With v = reverse(i) / 2**bits, i < 2**bits, floor(size * v) takes every value: so any degree can be had. MALT-2's
    # offsets, without the + 1 (N/2, N/4, 3N/4, ...), share a factor with N and never leave a part of the ranks.
    bits = log2_ceil(size)
    reverse = [int(f"{i:0{bits}b}"[::-1], 2) for i in range(1 << bits)]
    return [o for o in dict.fromkeys(1 + (size * r >> bits) for r in reverse) if o < size]


def chord_offsets(size: int) -> list[int]:
    return list(dict.fromkeys([1, *(size >> k for k in range(1, size.bit_length()))])) if size > 1 else []


def exponential_offsets(size: int) -> list[int]:
    return [1 << k for k in range(log2_ceil(size))]


def one_peer(size: int) -> Phases:
    return tuple(circulant(size, [o]) for o in exponential_offsets(size)) or (((),),)


def hypercube(size: int) -> Table:
    # Strongly connected with ranks missing: clearing bits leads through lower ranks, which all exist, to 0; and back.
    bits = range(log2_ceil(size))
    return tuple(tuple(sorted(p for p in (r ^ (1 << b) for b in bits) if p < size)) for r in range(size))


def torus(size: int) -> Table:
    height = next(h for h in range(isqrt(size), 0, -1) if size % h == 0)
    width = size // height

    def peers(r: int) -> tuple[int, ...]:
        row, column = divmod(r, width)
        across = {row * width + (column + d) % width for d in (-1, 1)}
        along = {(row + d) % height * width + column for d in (-1, 1)}
        return tuple(sorted((across | along) - {r}))

    return tuple(peers(r) for r in range(size))


def star(size: int, members: Sequence[int]) -> Table:
    hub, leaves = members[0], tuple(members[1:])
    spokes = {hub: leaves} | dict.fromkeys(leaves, (hub,))
    return tuple(spokes.get(r, ()) for r in range(size))


def random_regular(size: int, degree: int, seed: int) -> Table:
    """Disjoint random permutations, the first of them one cycle; if more than half of all edges, what those leave out.

    What they leave out is strongly connected too: where out-degree + in-degree >= size, any two ranks share a peer or
    are peers.
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
    """Swaps entries of the permutation `to` until it has no edge that is `taken`."""
    ranks = np.arange(to.size)
    for r in ranks:
        if taken[r, to[r]]:
            # With m edges taken a rank (itself counted), 2m - 1 partners at most are ruled out: fewer than all, as
            # m <= (size - 1) // 2. A swap makes no new clash.
            partners = np.flatnonzero(~taken[r, to] & ~taken[ranks, to[r]])
            s = rng.choice(partners)
            to[r], to[s] = to[s], to[r]


def reverse(table: Table) -> Table:
    senders: list[list[int]] = [[] for _ in table]
    for r, peers in enumerate(table):
        for p in peers:
            senders[p].append(r)
    return tuple(map(tuple, senders))
