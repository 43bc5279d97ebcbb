"""Which rows are whose while ranks die: looked at between epochs, told in the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import malt
from malt.data.shards import living_rows
from malt.world.agreement import exchange


class Losses:
    """Which ranks have died, and how many rows each had then: also those of others that had died before it, and were
    dealt to it. Local, all of it.

    `rows`: how many a rank has that was alive when rows were dealt last; `unit`: what they are called.
    """

    def __init__(self, rows: Callable[[int], int], unit: str = "rows") -> None:
        self._rows, self._unit = rows, unit
        self._began = time.time()
        self._had: dict[int, int] = {}

    def bury(self, dead: Collection[int], alive: tuple[int, ...]) -> None:
        """The rows of `dead`, as they still are, are about to be dealt to `alive`, the lowest of whom says so."""
        for rank in sorted(dead):
            self._had[rank] = self._rows(rank)
            if malt.rank() == alive[0]:
                print(f"malt: {self._had[rank]:,} {self._unit} of rank {rank} are dealt to {listed(alive)}",
                      file=sys.stderr, flush=True)  # fmt: skip

    def told(self) -> list[dict[str, Any]]:
        """What the report says of those that have died until now, after the training too."""
        malt.init().transport.look()
        reasons = malt.init().reasons
        return [
            {
                "rank": rank,
                "at_s": max(0.0, at - self._began),
                "reason": reasons[rank],
                "rows": self._had[rank] if rank in self._had else self._rows(rank),
            }
            for rank, at in sorted(malt.init().lost.items())
        ]


class Shares:
    """This rank's part of `count` rows, as `malt.shard` deals them, over the epochs. Local, all of it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._alive = tuple(range(malt.size()))
        self.losses = Losses(self._rows)
        self._ended: list[float] = []
        """When each epoch ended."""
        self._dealt: dict[int, float] = {}
        """When the rows of each of the dead were dealt to others."""

    def epochs(self, first: int, last: int, sync: str) -> Iterator[int]:
        """The epochs from `first` to `last`, to be trained one by one.

        Where ranks may die, and do not wait for each other, one may stand still for most of a short training before
        that is found out. So the last epochs are trained again, as many as went by without its rows, unless as many
        have followed with them. Collective at the end.
        """
        more = last - first + 1
        while more > 0:
            for epoch in range(last - more + 1, last + 1):
                yield epoch
                self._ended.append(time.time())
            more = self._owed(last - first + 1) if sync == "asp" else 0

    def _owed(self, most: int) -> int:
        """How many epochs are to follow. Collective."""
        if not malt.init().transport.mortal:
            return 0
        malt.barrier()  # one that stands still is found out at the latest here
        owed = 0
        for rank, at in malt.init().lost.items():
            dealt_at = self._dealt.get(rank, float("inf"))
            without = sum(at < ended <= dealt_at for ended in self._ended)
            owed = max(owed, without - sum(ended > dealt_at for ended in self._ended))
        return min(max(exchange(malt.init().transport, owed).values()), most)

    def changed(self) -> bool:
        """Whether ranks have died since the last call: `malt.shard` gives this rank other rows now. The lowest living
        rank says what became of theirs."""
        alive = malt.alive()
        dead = set(self._alive) - set(alive)
        self._dealt |= dict.fromkeys(dead, time.time())
        self.losses.bury(dead, alive)
        self._alive = alive
        return bool(dead)

    def _rows(self, rank: int) -> int:
        dead = set(range(malt.size())) - set(self._alive)
        return len(living_rows(self._count, rank, malt.size(), dead))


def listed(ranks: tuple[int, ...]) -> str:
    """As "ranks 0, 2, 3"."""
    return f"rank{'s'[: len(ranks) > 1]} {', '.join(map(str, ranks))}"
