"""Which rows are whose while ranks die: looked at between epochs, told in the report."""

from __future__ import annotations

import sys
import time
from typing import Any

import malt
from malt.shards import bounds

ENDED = "its process ended"
"""Why a rank was lost, as far as others can tell."""


class Shares:
    """This rank's part of `count` rows, as `malt.shard` deals them, over the epochs. Local, all of it."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._alive = tuple(range(malt.size()))
        self._began = time.time()

    def changed(self) -> bool:
        """Whether ranks have died since the last call: `malt.shard` gives this rank other rows now. The lowest living
        rank says what became of theirs."""
        before, self._alive = self._alive, malt.alive()
        dead = set(before) - set(self._alive)
        if dead and malt.rank() == self._alive[0]:
            for rank in sorted(dead):
                print(f"malt: {self._rows(rank):,} rows of rank {rank} are dealt to {listed(self._alive)}",
                      file=sys.stderr, flush=True)  # fmt: skip
        return bool(dead)

    def lost(self) -> list[dict[str, Any]]:
        """What the report says of those that died."""
        return [
            {"rank": rank, "at_s": max(0.0, at - self._began), "reason": ENDED, "rows": self._rows(rank)}
            for rank, at in sorted(malt.init().lost.items())
        ]

    def _rows(self, rank: int) -> int:
        first, last = bounds(self._count, rank, malt.size())
        return last - first


def listed(ranks: tuple[int, ...]) -> str:
    """As "ranks 0, 2, 3"."""
    return f"rank{'s'[: len(ranks) > 1]} {', '.join(map(str, ranks))}"
