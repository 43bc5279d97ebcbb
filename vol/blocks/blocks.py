"""An array in blocks of rows, each of which one rank holds at a time: it trains the rows and passes them on.

No two ranks change a row at the same time, so nothing is averaged: the result is that of some serial order (Gemulla et
al., KDD 2011; Yun et al., NOMAD, VLDB 2014). vol/blocks/route.py says who has which block when.

A block lands in a slot of its receiver, who copies it into its array as it begins its visit. So each rank always has
whole rows of every block, newer or older. When ranks fail, the others settle, in one collective, with which copy of
each block they go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dstorm import Slots, Statistics, Transport
from dstorm.header import WHOLE
from dstorm.view import Change
from dstorm.waits import interruption
from vol.blocks import route
from vol.blocks.route import LANES, Report
from vol.shared import Shared
from vol.update import Array


class Visit(NamedTuple):
    """A block that this rank holds, and may train."""

    block: int
    """The number of the block, from 0."""
    rows: slice
    """Its rows in the array."""


class Blocks(Shared):
    """This rank's copy of an array of blocks, and the passing on of blocks. The constructor is Collective.

    All ranks pass an array of the same shape, dtype and values, C-contiguous and writable. It becomes this rank's copy
    itself. `sizes`: the numbers of rows of the blocks. `owners`: by row the one rank that uses it, or -1 for a row that
    several use, all of which stand first in their block. None: several ranks use all rows. `ranks`: those that are
    alive, the same on all ranks.
    """

    def __init__(
        self, array: Array, sizes: Sequence[int], transport: Transport, owners: NDArray[np.int32] | None = None, *,
        ranks: Sequence[int], deadline_s: float = 300.0, name: str = "blocks",
    ) -> None:  # fmt: skip
        self._array, self._transport = array, transport
        self._rank = transport.rank
        self._slices = [slice(*ends) for ends in pairwise(accumulate(sizes, initial=0))]
        is_whole = len(ranks) == transport.size  # else others do already what a failed rank should have done
        self._owners = owners if owners is not None and is_whole else np.full(len(array), -1)
        self._travelling = self._payloads()
        self._slots = Slots(transport, [array[rows].nbytes for rows in self._slices], LANES, deadline_s)
        super().__init__(name, self._slots)
        self.ranks = tuple(ranks)
        """The ranks that the blocks go to, ascending: the same on all ranks that have settled the same failures."""
        self._routes = [route.first(block, self.ranks) for block in range(len(self._slices))]
        self._versions = [0] * len(self._slices)
        """The version of this rank's copy of each block."""
        self._held = {block for block, way in enumerate(self._routes) if way.keeper == self._rank}
        self._rounds = 0
        """The number of rounds that this rank has ended."""
        self._due: dict[int, int] = {}
        """The versions that it has still to visit in this round, by block."""
        self._ready: deque[int] = deque()
        """The blocks of them that it holds, in the order in which they came."""
        self._visited: int | None = None
        """The block whose visit is under way."""
        self._in_round = False
        self.passes_lost = 0
        """How many blocks failed with the rank that held them: the pass to it is lost."""
        self._missing: set[int] = set()
        """Ranks of `ranks` that are known not to go on."""
        transport.view.subscribe(self._note)

    @property
    def array(self) -> Array:
        """This rank's copy: the array that the blocks were made with.

        Rows of a block that it does not hold are those of its last visit.
        """
        return self._array

    def round(self) -> Iterator[Visit]:
        """Yield each block once, as it arrives, for this rank to train its rows in `array`. One-sided.

        A block is passed on when the loop asks for the next one. If none has arrived, the loop waits. All ranks make
        the same number of rounds, and complete each loop.

        ClosedError: the blocks are closed. DeadlinePassed: a rank from which a block should come has given no
        heartbeat. RuntimeError: the loop of the last round was left before its end; another thread is in a call of the
        blocks.
        """
        self._begin_round()
        while (visit := self._next()) is not None:
            yield visit

    @interruption.whole
    def barrier(self) -> None:
        """Return once all ranks have ended the same rounds. Collective.

        A rank that waits here takes part when the others settle how to go on after a failure. Errors: as `common`.
        """
        with self._slots.call_lock.taken(f"{self.name}.barrier"):
            self._check_between_rounds()
            while not self._meet(waits=True):
                continue

    def newest(self) -> NDArray[np.bool_]:
        """Return, by row, whether this rank has the newest values. Local.

        These are the rows of the blocks that it holds, and those that it alone uses.
        """
        mask: NDArray[np.bool_] = self._owners == self._rank
        for block in self._held:
            rows = self._slices[block]
            mask[rows] |= self._owners[rows] < 0
        return mask

    @interruption.whole
    def common(self) -> Array:
        """Return a copy of the array with the newest rows of all blocks: the same bits on all ranks. Collective.

        All ranks have made the same number of rounds. Ranks that come early wait for those that still train, also where
        these settle how to go on after a failure.

        ClosedError, RuntimeError: as `round`. DeadlinePassed, MismatchedCalls: as malt.barrier.
        """
        with self._slots.call_lock.taken(f"{self.name}.common"), self._transport.calling(self.name):
            self._check_between_rounds()
            while True:
                while not self._meet(waits=True):
                    continue
                ranks, whole, is_mine = self.ranks, np.zeros_like(self._array), self.newest()
                whole[is_mine] = self._array[is_mine]
                self._transport.allreduce(whole, "sum")
                if self._meet(waits=True) and self.ranks == ranks:  # else the part of a rank may be missing
                    return whole

    def __repr__(self) -> str:
        shape, count = self._array.shape, len(self._slices)
        return f"<{self.name}: {self._array.dtype} {shape} in {count} blocks{', closed' if self.closed else ''}>"

    # -- private ----------------------------------------------------------------------------------------------

    def _check_between_rounds(self) -> None:
        self._check_open()
        if self._in_round:
            raise RuntimeError(f"{self.name}: a loop over a round was left before its end, with blocks to visit")

    def _statistics(self) -> Statistics:
        return self._slots.statistics()

    @interruption.whole
    def _begin_round(self) -> None:
        with self._slots.call_lock.taken(f"{self.name}.round"):
            self._check_between_rounds()
            self._in_round = True
            self._find_due()

    @interruption.whole
    def _next(self) -> Visit | None:
        """The next visit of this round, once the last one's block is passed on; None: the round has ended."""
        with self._slots.call_lock.taken(f"{self.name}.round"):
            self._check_open()
            self._transport.poll_failures()
            self._check_open()  # a callback may have closed it
            if self._visited is not None:
                self._end_visit(self._visited)
            while self._due:
                if self._missing:
                    self._meet(waits=False)
                if self._ready:
                    return self._begin_visit(self._ready.popleft())
                self._slots.wait(f"{self.name}.round", self._givers)
            self._rounds += 1
            self._in_round = False
            return None

    def _begin_visit(self, block: int) -> Visit:
        del self._due[block]
        self._visited = block
        return Visit(block, self._slices[block])

    def _end_visit(self, block: int) -> None:
        self._visited = None
        self._versions[block] += 1
        self._pass_on(block)

    def _pass_on(self, block: int) -> None:
        """Pass a block that this rank holds on to the rank that visits it next, unless that is this one."""
        way, version = self._routes[block], self._versions[block]
        receiver = way.visitor(version)
        if receiver != self._rank:
            self._held.remove(block)
            self._slots.put(receiver, block, way.lane(version), version, self._travelling[block])

    def _find_due(self) -> None:
        """Find what this rank has still to visit in its round, and which blocks of that it holds.

        Called as a round begins, and in a round once routes are mended, which have no visit that was made.
        """
        visits = [way.visit(self._rank, self._rounds) for way in self._routes]
        self._due = {block: visit for block, visit in enumerate(visits) if visit is not None}
        self._ready = deque(
            block for block, visit in self._due.items() if block in self._held and visit == self._versions[block]
        )

    def _find_arrivals(self) -> None:
        """Take the awaited blocks that have come."""
        self._slots.sync()
        for block, version in self._due.items():
            if block not in self._held and self._has_come(block, version):
                self._take(block, version)
                self._ready.append(block)

    def _has_come(self, block: int, version: int) -> bool:
        seen = self._slots.seen(block, self._routes[block].lane(version))
        return seen is not None and (seen.number, seen.state, seen.nbytes) == (
            version,
            WHOLE,
            self._travelling[block].nbytes,
        )

    def _take(self, block: int, version: int) -> None:
        self._slots.take(block, self._routes[block].giver(version), self._travelling[block])
        self._versions[block] = version
        self._held.add(block)

    def _givers(self) -> set[int]:
        """The ranks from which awaited blocks come; none if there is something to do."""
        self._transport.poll_failures(quietly=True)
        self._find_arrivals()
        if self._ready or self._missing:
            return set()
        givers = {self._routes[block].giver(version) for block, version in self._due.items()}
        if closed := set(filter(self._slots.has_closed, givers)):
            self._find_arrivals()  # what they passed on before has come
            if self._ready:
                return set()
            self._transport.view.check_left(min(closed), f"it has closed {self.name}, and owes this rank a block")
        return givers

    # -- private: failures ------------------------------------------------------------------------------------

    def _note(self, change: Change) -> None:
        """Note that ranks do not go on. The subscriber of the membership view."""
        self._missing |= {member.rank for member in change.failed}.intersection(self.ranks)

    def _meet(self, waits: bool) -> bool:
        """Settle with all others which ranks go on, and with which copies. Return whether all wait. Collective.

        The last exchange of reports is one in which no rank was missing: on return all ranks have done what follows
        from the others.
        """
        with self._transport.calling(self.name):
            while True:
                reports = self._reports(waits)
                if tuple(reports) == self.ranks:
                    break
                self._settle(reports)
            self._missing &= set(self.ranks)
        for block in sorted(self._held):
            self._pass_on(block)
        if self._in_round:
            self._find_due()
        return all(report.waits for report in reports.values())

    def _reports(self, waits: bool) -> dict[int, Report]:
        """The reports of all live ranks, ascending. Collective."""
        for block, way in enumerate(self._routes):
            if block not in self._held:
                self._take_newest(block, way)
        held = [int(block in self._held) for block in range(len(self._routes))]
        mine = np.array([[waits] * len(held), self._versions, held], np.int64)
        tables = {
            rank: np.frombuffer(data, np.int64).reshape(mine.shape)
            for rank, data in enumerate(self._transport.allgather(mine.tobytes()))
            if data
        }
        return {rank: Report(bool(one[0].all()), *map(tuple, one[1:].tolist())) for rank, one in tables.items()}

    def _take_newest(self, block: int, way: route.Route) -> None:
        """Take a block that has come, for whatever round."""
        for seen in (self._slots.seen(block, lane) for lane in range(LANES)):
            if seen is not None and seen.number > self._versions[block] and self._has_come(block, seen.number):
                self._take(block, seen.number)

    def _settle(self, reports: dict[int, Report]) -> None:
        """Go on with the ranks of `reports` and the newest copies that they have. Collective."""
        self.ranks = tuple(reports)
        self.passes_lost += sum(
            not any(held) for held in zip(*(report.held for report in reports.values()), strict=True)
        )
        self._routes = [route.mended(block, way, reports) for block, way in enumerate(self._routes)]
        self._held = {block for block, way in enumerate(self._routes) if way.keeper == self._rank}
        for block in self._held:
            self._versions[block] = self._routes[block].version
        self._make_common()

    def _make_common(self) -> None:
        """Give all ranks the rows that one rank alone has used: from now on all rows travel. Collective.

        Another rank may take over what a failed rank did. Rows that the failed rank alone had used begin anew.
        """
        lone = np.flatnonzero(self._owners >= 0)
        if not lone.size:
            return
        flat = self._array.reshape(len(self._array), -1)
        mine = self._owners[lone] == self._rank
        sums = np.zeros((lone.size, flat.shape[1] + 1), flat.dtype)
        sums[mine, :-1], sums[mine, -1] = flat[lone[mine]], 1
        self._transport.allreduce(sums, "sum")
        is_known = sums[:, -1] > 0
        flat[lone[is_known]] = sums[is_known, :-1]
        self._owners = np.full(len(self._array), -1)
        self._travelling = self._payloads()

    # -- private: rows ----------------------------------------------------------------------------------------

    def _payloads(self) -> list[NDArray[np.uint8]]:
        """The rows of each block that travel: views of the array, as bytes."""
        shared = [int(np.count_nonzero(self._owners[rows] < 0)) for rows in self._slices]
        return [
            self._array[rows.start : rows.start + count].reshape(-1).view(np.uint8)
            for rows, count in zip(self._slices, shared, strict=True)
        ]
