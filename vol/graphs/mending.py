"""The edges of a graph without some of its ranks: what connects those that remain. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from vol.graphs.builders import Peers, Phases, union
from vol.graphs.connectivity import components


def renumbered(phases: Phases, remaining: Sequence[int]) -> Phases:
    """Return `phases` with the remaining ranks numbered from 0: a mended ring is then a ring."""
    number = {r: k for k, r in enumerate(remaining)}
    return tuple(tuple(tuple(number[p] for p in table[r]) for r in remaining) for table in phases)


def extended(phases: Phases, size: int) -> Phases:
    """Return `phases` with more ranks, `size` in all, which have no peers."""
    return tuple((*(tuple(table[r]) for r in range(len(table))), *[()] * (size - len(table))) for table in phases)


def mended(phases: Phases, remaining: Sequence[int]) -> Phases:
    """Return `phases` among the remaining ranks, with edges that join their strongly connected parts into a ring.

    So the parts of a cut ring, which are single ranks, become a ring again. The sender of a new edge is the rank of its
    part with the fewest targets left, often one that has lost a peer. The edge goes into a phase where that rank has no
    other target, if there is one.
    """
    tables: list[list[Peers]] = [[()] * len(table) for table in phases]
    for made, table in zip(tables, phases, strict=True):
        for r in remaining:
            made[r] = tuple(sorted(set(table[r]).intersection(remaining)))
    targets = union(tuple(map(tuple, tables)))
    parts = components(targets, remaining)
    for here, there in zip(parts, parts[1:] + parts[:1], strict=True):
        if here is there or not set(there).isdisjoint(chain.from_iterable(targets[r] for r in here)):
            continue
        sender = min(here, key=lambda r: len(targets[r]))
        idle = next((t for t in tables if not t[sender]), tables[0])
        idle[sender] = tuple(sorted((*idle[sender], there[0])))
    return tuple(map(tuple, tables))
