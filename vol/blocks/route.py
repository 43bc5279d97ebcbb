"""The route of a block: which rank has it when, in which round. Pure.

All ranks make the same rounds. In each round every rank visits every block once: it trains the rows of the block on its
own data. A block's *version* is the number of visits that its rows hold. The rank that makes the next visit is its
holder.

The ranks form a ring. In its first round a block goes from rank to rank along the ring, in the next one back, and so
on. So the last rank of a round is the first of the next, and a round of P ranks takes P - 1 passes.

Why no rank waits for ever: a rank begins a round once it has made all its visits of the round before. Take a rank in
the lowest round, and a block that it still has to visit there. That block is in the same round, and each rank before it
on the route has its visit of this round to make, so is in this round too. Of these, the holder needs nothing but the
block for its visit, and then passes it on.

Each version of a block reaches a rank in one of LANES lanes. Between two failures only one rank writes to the lane of a
block at a rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

LANES: Final = 3
"""Lane 0: for visits of `rest`. Lanes 1 and 2: for rounds along the ring and back."""


class Route(NamedTuple):
    """The visits of a block from a version on: first those of `rest`, then whole rounds of all ranks."""

    version: int
    """The version at which the route begins."""
    round: int
    """The round of the visits of `rest`. Rounds count from 0."""
    rest: tuple[int, ...]
    """The ranks that have still to visit the block in that round, in this order."""
    ranks: tuple[int, ...]
    """The ring of ranks, ascending."""
    start: int
    """The place in `ranks` of the rank that begins the next round."""
    keeper: int
    """The rank that has the block at the beginning."""

    def visitor(self, version: int) -> int:
        """The rank that makes the visit after this version."""
        number = version - self.version
        if number < len(self.rest):
            return self.rest[number]
        turn, place = divmod(number - len(self.rest), len(self.ranks))
        return self.ranks[(self.start + (-1 - place if turn % 2 else place)) % len(self.ranks)]

    def giver(self, version: int) -> int:
        """The rank that passes this version on."""
        return self.keeper if version == self.version else self.visitor(version - 1)

    def round_of(self, version: int) -> int:
        """The round of the visit after this version."""
        number = version - self.version - len(self.rest)
        return self.round if number < 0 else self.round + 1 + number // len(self.ranks)

    def visit(self, rank: int, number: int) -> int | None:
        """The version that `rank` visits in round `number`; None: it makes no visit there."""
        if number <= self.round:
            is_due = number == self.round and rank in self.rest
            return self.version + self.rest.index(rank) if is_due else None
        turn = number - self.round - 1
        place = (self.ranks.index(rank) - self.start) % len(self.ranks)
        if turn % 2:
            place = len(self.ranks) - 1 - place
        return self.version + len(self.rest) + turn * len(self.ranks) + place

    def lane(self, version: int) -> int:
        """The lane in which this version reaches its visitor."""
        number = version - self.version - len(self.rest)
        return 0 if number < 0 else 1 + number // len(self.ranks) % 2


def first(block: int, ranks: tuple[int, ...]) -> Route:
    """The route of a block that nobody has visited. Blocks are dealt to the ranks in turn."""
    home = block % len(ranks)
    return Route(0, -1, (), ranks, home, ranks[home])


class Report(NamedTuple):
    """The report of one rank on its copies of the blocks when ranks have failed."""

    waits: bool
    """Whether it is between two rounds, and waits for the others."""
    versions: tuple[int, ...]
    """The version of its copy of each block."""
    held: tuple[int, ...]
    """Whether it holds the block: 0 or 1."""


def mended(block: int, route: Route, reports: Mapping[int, Report]) -> Route:
    """The route of a block among the ranks of `reports`.

    It goes on with the newest copy, that of the lowest rank where several have it. A copy holds all visits of its rank.
    So what is lost are visits of ranks that have failed.
    """
    ranks = tuple(sorted(reports))
    newest = max(report.versions[block] for report in reports.values())
    version = max(newest, route.version)
    keeper = min(rank for rank in ranks if reports[rank].versions[block] == newest)
    number = route.round_of(version)
    ring = ranks[ranks.index(keeper) :] + ranks[: ranks.index(keeper)]
    rest = tuple(rank for rank in ring if (visit := route.visit(rank, number)) is not None and visit >= version)
    last = rest[-1] if rest else keeper
    return Route(version, number, rest, ranks, ranks.index(last), keeper)
