"""Deals rows to ranks while ranks fail, and describes the failed ranks in the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import malt
from malt import epochs  # now: malt.epochs imports it at its first call, once ranks train
from malt.data import rows_of
from malt.models import by_rank


class Failures:
    """The ranks that have failed, and how many rows each had then, those dealt to it before included. Local.

    `rows` returns the number of rows of a rank that was alive when rows were dealt last. `unit` is the word for rows.
    """

    def __init__(self, rows: Callable[[int], int], unit: str) -> None:
        self._rows, self._unit = rows, unit
        self._began_s = malt.clock()
        self._had: dict[int, int] = {}
        self._anew: dict[int, dict[str, int]] = {}
        """By rank, what the report says of the epoch in which its part began anew."""

    def mark_failed(self, failed_ranks: Collection[int], alive: tuple[int, ...]) -> None:
        """Note that the rows of `failed_ranks` go to the ranks `alive`. The lowest of these prints a line for each."""
        for rank in sorted(failed_ranks):
            self._had[rank] = self._rows(rank)
            if malt.rank() == alive[0]:
                print(f"malt: {self._had[rank]:,} {self._unit} of rank {rank} are dealt to {listed(alive)}",
                      file=sys.stderr, flush=True)  # fmt: skip

    def mark_anew(self, epoch: int) -> None:
        """Note that the parts of ranks marked failed since the last call are reinitialized in `epoch`."""
        self._anew |= {rank: {"anew_in_epoch": epoch} for rank in self._had.keys() - self._anew.keys()}

    def entries(self) -> list[dict[str, Any]]:
        """The entries of the report, one for each rank that has failed until now, also after training."""
        return [
            {
                "rank": failure.rank,
                "at_s": max(0.0, failure.at_s - self._began_s),
                "reason": failure.reason,
                "rows": self._had[failure.rank] if failure.rank in self._had else self._rows(failure.rank),
                **self._back(failure.back_at_s),
                **self._anew.get(failure.rank, {}),
            }
            for failure in malt.lost_ranks()
        ]

    def _back(self, at_s: float | None) -> dict[str, float]:
        """The entry of a rank that came back at this time; empty: it did not."""
        return {} if at_s is None else {"back_at_s": max(0.0, at_s - self._began_s)}


class Shares:
    """The shares of `count` rows, dealt as by `malt.shard`, and the epochs that are trained. Local, except `epochs`.

    `unit`: the word for rows in messages. A program that deals its data otherwise has a subclass with its own `rows`.
    """

    is_made_up = True
    """Whether epochs that lacked the rows of a failed rank are trained again."""

    def __init__(self, count: int, unit: str = "rows") -> None:
        self._count = count
        self.alive = malt.init().dealt.ranks
        """The ranks that were alive when rows were dealt last."""
        self._last = malt.init().dealt
        self.failures = Failures(self.rows, unit)
        self._ended: list[float] = []
        """When each epoch ended. All times are those of malt.clock()."""
        self._dealt: dict[int, float] = {}
        """When the rows of each failed rank were dealt to others."""

    @property
    def failed(self) -> set[int]:
        """The ranks that had failed when rows were dealt last."""
        return set(malt.init().dealt.ranks) - set(self.alive)

    def rows(self, rank: int) -> int:
        """The number of rows of `rank`, which was alive when rows were dealt last, or has joined since."""
        return len(rows_of(self._count, rank, self.failed - {rank}))

    def epochs(self, first: int, last: int, sync: str) -> Iterator[int]:
        """Yield the epochs from `first` to `last`, each to be trained before the next. Collective at the end.

        Under asp a rank may have stopped long before the others notice, and epochs pass without its rows. The last
        epochs are then yielded again: as many as lacked its rows, less those that followed after its rows were dealt.
        """
        more = last - first + 1
        while more > 0:
            for epoch in self._epochs(last - more + 1, last + 1):
                yield epoch
                self._ended.append(malt.clock())
            more = self._missing(last - first + 1) if sync == "asp" and self.is_made_up else 0

    @staticmethod
    def _epochs(first: int, end: int) -> Iterator[int]:
        """The epochs of this rank; rows are dealt among those that train each."""
        return epochs(end, first)

    def _missing(self, most: int) -> int:
        """Return how many epochs are to be trained again. Collective."""
        if not malt.init().survive:
            return 0
        malt.barrier()  # a stopped rank is marked failed here at the latest
        missing = 0
        for failure in malt.lost_ranks():
            # Its rows are trained again by others, or by itself.
            since = _first((self._dealt.get(failure.rank), failure.back_at_s), failure.at_s)
            without = sum(failure.at_s < ended <= since for ended in self._ended)
            missing = max(missing, without - sum(ended > since for ended in self._ended))
        reports = by_rank([missing, most]).values()  # a rank that came back has fewer epochs than others
        return int(min(max(column) for column in zip(*reports, strict=True)))

    def check(self, error: malt.PeerLost) -> None:
        """Raise `error` again, unless its rank has failed while the others go on. Local."""
        if error.rank in malt.alive():
            raise error

    def present(self) -> tuple[int, ...]:
        """The ranks that have not failed, ascending, as this rank knows. Local.

        A subclass whose ranks must know of the same failures makes it collective.
        """
        malt.alive()  # so that what is known is as new as can be
        dealt = malt.init().dealt
        return tuple(rank for rank in dealt.ranks if rank not in dealt.heirs)

    def are_dealt_anew(self) -> bool:
        """Return whether rows may be dealt otherwise than at the last call, though the same ranks are alive. Local."""
        before, self._last = self._last, malt.init().dealt
        return malt.init().crew is not None and self._last != before

    def changed(self, alive: tuple[int, ...]) -> bool:
        """Return whether ranks have failed or rejoined since the last call. If so, all rows now belong to `alive`.

        The lowest of these prints how many rows are dealt again.
        """
        before = set(self.alive)
        failed = before.intersection(malt.init().dealt.ranks).difference(alive)  # others have left as the job shrank
        self._dealt |= dict.fromkeys(failed, malt.clock())
        self.failures.mark_failed(failed, alive)
        self.alive = alive
        return bool(before.symmetric_difference(alive))


class CommonShares(Shares):
    """The shares of ranks that synchronize in each epoch: all know of the same failures. `present` is collective."""

    is_made_up = False

    def present(self) -> tuple[int, ...]:
        return tuple(by_rank(None))

    @staticmethod
    def _epochs(first: int, end: int) -> Iterator[int]:
        return iter(range(first, end))

    def are_dealt_anew(self) -> bool:
        return False


def _first(moments: Collection[float | None], start: float) -> float:
    """The first of the known moments from `start` on; infinity: there is none."""
    return min((at for at in moments if at is not None and at >= start), default=float("inf"))


def listed(ranks: tuple[int, ...]) -> str:
    """A list such as "ranks 0, 2, 3"."""
    return f"rank{'s'[: len(ranks) > 1]} {', '.join(map(str, ranks))}"
