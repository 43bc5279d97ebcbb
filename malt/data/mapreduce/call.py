"""One call of malt.map_reduce on this rank: chunks are dealt and done until all are, also where ranks fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dstorm import PeerLost
from dstorm.reduction import RanksChanged
from malt.data.mapreduce import results, travel
from malt.data.mapreduce.assignment import assign, travels
from malt.data.mapreduce.cache import Cache
from malt.data.mapreduce.chunk_errors import ChunkError, chunk_error, raise_first
from malt.data.mapreduce.chunks import Own
from malt.data.mapreduce.location import Location
from malt.data.mapreduce.results import Reduce, Report, Values
from malt.data.mapreduce.tree import covered, insert
from malt.session.world.world import World


class Call:
    """One call of this rank: its results, and its knowledge of the others. `reduce`: None: results are added."""

    def __init__(
        self, world: World, cache: Cache, function: Callable[[Any, Any], Any], theta: Any, own: Own | None,
        place: Location, reduce: Reduce | None,
    ) -> None:  # fmt: skip
        self._world, self._cache, self._transport = world, cache, world.transport
        self._function, self._theta, self._own = function, theta, own
        self._ranks, self._owners = place
        self._combine, self._in_parts, self._count = reduce or results.added, reduce is None, len(place.owners)
        self._reports: dict[int, Report] = {}
        """What ranks have done, by rank; the same on all."""
        self._values: Values = {}
        self._broken: dict[int, ChunkError] = {}
        """The chunks that this rank could not do, or could not be sent."""
        self._error: Exception | None = None

    def result(self) -> Any:
        """The value of all chunks. Collective."""
        while True:
            try:
                while missing := self._missing():
                    self._deal(missing)
                    self._tell()
                reports = {rank: self._reports[rank] for rank in self._ranks}
                return results.reduced(self._world.traffic, reports, self._values, self._count, self._combine)
            except RanksChanged as change:
                self._ranks = list(change.ranks)

    def _missing(self) -> list[int]:
        """The chunks that no live rank has done."""
        done = [node for rank in self._ranks if rank in self._reports for node in self._reports[rank].nodes]
        return sorted(set(range(self._count)) - covered(done, self._count))

    def _tell(self) -> None:
        """Exchange what ranks have done. Collective. The error of the lowest chunk that failed, on all ranks."""
        first = min(self._broken, default=None)
        error = None if first is None else self._broken[first]
        everyone = self._transport.allgather(results.message(error, self._values, self._in_parts))
        self._reports = {rank: results.report(one) for rank, one in enumerate(everyone) if one}
        self._ranks = list(self._reports)
        raise_first([one.error for one in self._reports.values() if one.error], self._error)

    def _deal(self, chunks: list[int]) -> None:
        """Do this rank's part of `chunks`. Collective. PeerLost, RanksChanged, on all ranks."""
        owners = [one.intersection(self._ranks) for one in self._owners]
        for chunk in chunks:
            if not owners[chunk]:
                raise PeerLost(min(self._owners[chunk]), f"malt.map_reduce needs chunk {chunk} of its dataset")
        given = assign(chunks, owners, self._ranks)
        for some in travel.rounds(travels(given, owners)):
            received = travel.exchange(self._world.chunk_traffic, self._ranks, some, self._data)
            for chunk, error, data, nbytes in received:
                if error:
                    self._broken[chunk] = error
                else:
                    self._cache.put(self._cache.digests[chunk], data, nbytes)
            for one in some:
                self._owners[one.chunk].add(one.receiver)
        self._do(given[self._world.rank])

    def _data(self, chunk: int) -> Any:
        """The data of a chunk that this rank has."""
        return self._cache.get(self._cache.digests[chunk]) if self._own is None else self._own.slice(chunk)

    def _do(self, chunks: list[int]) -> None:
        """Do `chunks`, ascending, up to the first that fails."""
        for chunk in chunks:
            self._transport.heartbeat()
            if chunk in self._broken:
                return
            try:
                before = self._transport.meetings
                value = results.copied(self._function(self._theta, self._data(chunk)))
                if self._transport.meetings != before:  # with ranks that have fewer chunks it would be out of step
                    raise RuntimeError("function makes a collective call, such as malt.barrier, which it must not")
                insert(self._values, (0, chunk), value, self._count, self._combine)
            except Exception as error:  # of any type: all ranks raise it
                self._error, self._broken[chunk] = error, chunk_error(chunk, self._world.rank, error)
                return
