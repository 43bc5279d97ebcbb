"""Assigns chunks to ranks: each gets about as many as the others, and those that it has the data of first. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Travel(NamedTuple):
    """A chunk on its way to the rank that does it."""

    chunk: int
    sender: int
    receiver: int


def assign(chunks: Sequence[int], owners: Sequence[Collection[int]], ranks: Sequence[int]) -> dict[int, list[int]]:
    """The chunks of each rank, ascending: of n ranks each has at most 1/n of them, rounded up.

    `chunks`: those to do, ascending. `owners`: by chunk, the ranks that have its data. The list is cut into a part for
    each rank. A rank does what it has of its part. What is left goes to ranks that have the data and least to do; then
    to the rank of the part; then to those that have least to do.
    """
    most, given = -(-len(chunks) // len(ranks)), {rank: list[int]() for rank in ranks}
    left = [(chunk, ranks[place * len(ranks) // len(chunks)]) for place, chunk in enumerate(chunks)]
    for in_part, has_data in ((True, True), (False, True), (True, False), (False, False)):
        waiting, left = left, []
        for chunk, own in waiting:
            among = [rank for rank in ([own] if in_part else ranks) if rank in owners[chunk] or not has_data]
            able = [rank for rank in among if len(given[rank]) < most]
            if able:
                given[min(able, key=lambda rank: len(given[rank]))].append(chunk)
            else:
                left.append((chunk, own))
    return {rank: sorted(mine) for rank, mine in given.items()}


def travels(given: Mapping[int, Sequence[int]], owners: Sequence[Collection[int]]) -> list[Travel]:
    """The chunks that ranks do without having the data, ascending: the lowest rank that has it sends it.

    `owners`: as in `assign`; each chunk has one.
    """
    needed = sorted((chunk, rank) for rank, mine in given.items() for chunk in mine if rank not in owners[chunk])
    return [Travel(chunk, min(owners[chunk]), rank) for chunk, rank in needed]
