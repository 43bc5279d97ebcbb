"""Which rows are whose while ranks die: looked at between epochs, told in the report."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

import malt
from apps.harness.agreement import by_rank
from malt.data import rows_of


class Losses:
    """Which ranks have died, and how many rows each had then: also those of others that had died before it, and were
    dealt to it. Local, all of it.

    `rows`: how many a rank has that was alive when rows were dealt last; `unit`: what they are called.
    """

    def __init__(self, rows: Callable[[int], int], unit: str = "rows") -> None:
        self._rows, self._unit = rows, unit
        self._began = time.time()
        self._had: dict[int, int] = {}

    def mark_failed(self, failed_ranks: Collection[int], alive: tuple[int, ...]) -> None:
        """The rows of `failed_ranks` are about to be dealt to `alive`, the lowest of whom says so."""
        for rank in sorted(failed_ranks):
            self._had[rank] = self._rows(rank)
            if malt.rank() == alive[0]:
                print(f"malt: {self._had[rank]:,} {self._unit} of rank {rank} are dealt to {listed(alive)}",
                      file=sys.stderr, flush=True)  # fmt: skip

    def reports(self) -> list[dict[str, Any]]:
        """What the report says of those that have died until now, after the training too."""
        return [
            {
                "rank": lost.rank,
                "at_s": max(0.0, lost.at - self._began),
                "reason": lost.reason,
                "rows": self._had[lost.rank] if lost.rank in self._had else self._rows(lost.rank),
            }
            for lost in malt.lost_ranks()
        ]


class Shares:
    """This rank's part of `count` rows, as `malt.shard` deals them, over the epochs. Local, all but `epochs`.

    A program that deals its data otherwise has a subclass with its own `rows`."""

    unit = "rows"
    """What they are called."""
    is_made_up = True
    """Whether epochs that were trained without the rows of a failed rank are trained again."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.alive = tuple(range(malt.size()))
        """Who had not failed when rows were dealt last."""
        self.losses = Losses(self.rows, self.unit)
        self._ended: list[float] = []
        """When each epoch ended."""
        self._dealt: dict[int, float] = {}
        """When the rows of each failed rank were dealt to others."""

    @property
    def failed(self) -> set[int]:
        """Who had failed when rows were dealt last."""
        return set(range(malt.size())) - set(self.alive)

    def rows(self, rank: int) -> int:
        """How many `rank` has, which had not failed when rows were dealt last."""
        return len(rows_of(self._count, rank, self.failed))

    def epochs(self, first: int, last: int, sync: str) -> Iterator[int]:
        """The epochs from `first` to `last`, to be trained one by one.

        Where ranks may fail, and do not wait for each other, one may be stopped for most of a short training before
        that is found out. So the last epochs are trained again, as many as went by without its rows, unless as many
        have followed with them. Collective at the end.
        """
        more = last - first + 1
        while more > 0:
            for epoch in range(last - more + 1, last + 1):
                yield epoch
                self._ended.append(time.time())
            more = self._missing(last - first + 1) if sync == "asp" and self.is_made_up else 0

    def _missing(self, most: int) -> int:
        """How many epochs are to follow. Collective."""
        if not malt.init().survive:
            return 0
        malt.barrier()  # one that is stopped is found out at the latest here
        missing = 0
        for lost in malt.lost_ranks():
            dealt_at = self._dealt.get(lost.rank, float("inf"))
            without = sum(lost.at < ended <= dealt_at for ended in self._ended)
            missing = max(missing, without - sum(ended > dealt_at for ended in self._ended))
        return int(min(max(by_rank(missing).values()), most))

    def present(self) -> tuple[int, ...]:
        """The ranks that have not failed, ascending. A program whose ranks must know of the same failures has its own,
        which is collective."""
        return malt.alive()

    def changed(self, alive: tuple[int, ...]) -> bool:
        """Whether ranks have failed since the last call: rows are dealt otherwise now, to `alive`, the lowest of whom
        says what becomes of theirs."""
        failed = set(self.alive) - set(alive)
        self._dealt |= dict.fromkeys(failed, time.time())
        self.losses.mark_failed(failed, alive)
        self.alive = alive
        return bool(failed)


def listed(ranks: tuple[int, ...]) -> str:
    """As "ranks 0, 2, 3"."""
    return f"rank{'s'[: len(ranks) > 1]} {', '.join(map(str, ranks))}"
