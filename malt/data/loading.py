"""The store of a text file for all ranks: from its cache, or parsed and put there by the ranks of each host.

All ranks go through the same collective calls; those of a host that has its cache just have nothing to do. What a
host made is used by its ranks only, and that all hosts have the same columns is checked at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from dstorm import Transport
from malt.data import cache, store
from malt.data.cache import Source
from malt.data.store import Contents, Piece, Store
from malt.data.team import Incomplete, Team, with_a_team
from malt.world.agreement import succeed

CLOCK_TICK_NS: Final = 20_000_000
"""More than a tick of any kernel's file clock (10 ms): what is written later than that has another time."""
PLACES: Final = 2
Part = TypeVar("Part")


@dataclass(frozen=True)
class Format(Generic[Part]):
    """How text becomes columns. All of it is local."""

    kind: str
    """The name of its stores, the same for no other format."""
    read: Callable[[str, int, int], Part]
    """read(path, part, parts): part `part` of `parts` of a file, parsed. Raises OSError, ValueError."""
    report: Callable[[Part], Any]
    """What the other ranks need to know of a part: what JSON can say."""
    combine: Callable[[str, list[Any]], Contents]
    """combine(path, reports): what the columns of all parts are, in their order. ValueError: a part has a bad line."""
    pieces: Callable[[Part, Contents, list[Any]], Iterator[Piece]]
    """pieces(part, contents, reports): what a part puts into the columns, behind the parts that were reported."""
    check: Callable[[Store], object]
    """Raises one of store.DAMAGES where a store is not as those of this format."""


def shared(path: str, form: Format[Any], transport: Transport) -> Store:
    """The columns of a file, the same on all ranks; mapped, and shared within a host, where a cache can be. Collective.

    On all ranks alike: OSError, where the file cannot be read; ValueError, where it is not in that format, has nothing
    in it, changes meanwhile or is not the same on all hosts.
    """
    return with_a_team(transport, lambda team: _of_team(path, form, team))


def _of_team(path: str, form: Format[Any], team: Team) -> Store:
    source = succeed(team.transport, lambda: Source.of(path))
    found = succeed(team.transport, lambda: _find(source, form, team))
    reports = team.exchange(found and found.identity())
    if any(reports[rank] is None or reports[rank] != reports[ranks[0]] for ranks in team.hosts for rank in ranks):
        is_cached = len({reports[rank] for rank in team.ranks}) == 1
        found = _build(source, form, team, found if is_cached else None)
    assert found is not None
    team.check_same(path, found.identity())
    return found


def _find(source: Source, form: Format[Any], team: Team) -> Store | None:
    found = cache.find(source, form.kind, team.index, team.size)
    try:
        if found is not None:
            form.check(found)
    except store.DAMAGES:
        return None
    return found


def _build(source: Source, form: Format[Any], team: Team, stored: Store | None) -> Store:
    """Parse the file and keep it if there is a place; with `stored`, only take part in the calls. Collective."""
    part = succeed(team.transport, lambda: None if stored else _parse(source, form, team.index, team.size))
    reports = team.exchange(None if stored else [form.report(part)])
    contents = None
    for ranks in team.hosts:  # also of the others, for an error to be the same on all ranks
        if all(reports[rank] for rank in ranks):
            combined = form.combine(source.path, [reports[rank][0] for rank in ranks])
            contents = combined if ranks == team.ranks else contents
    for number in range(PLACES):
        writing = None
        if stored is None and contents is not None:
            before = [reports[rank][0] for rank in team.ranks[: team.index]]
            pieces = form.pieces(part, contents, before)
            writing = _Writing(source, form.kind, team, contents, pieces, cache.places(source.path)[number])
        stored = _written(writing, team) or stored
    return succeed(team.transport, lambda: stored or _in_memory(source, form, part if team.size == 1 else None))


def _parse(source: Source, form: Format[Part], part: int, parts: int) -> Part:
    """Part `part` of `parts` of the file, which stays in the state `source` meanwhile. Raises OSError, ValueError."""
    if 0 <= time.time_ns() - source.mtime_ns < CLOCK_TICK_NS:
        # Written to just now, and so again without a new time: the cache could not tell one from the other.
        time.sleep(CLOCK_TICK_NS / 1e9)
    before = Source.of(source.path)
    result = form.read(source.path, part, parts)
    if not source == before == Source.of(source.path):
        raise ValueError(f"{source.path}: the file changed while it was read: load it again once it is written")
    return result


def _in_memory(source: Source, form: Format[Any], whole: Any) -> Store:
    """The columns in memory of this process: every rank parses all of the file that has not yet."""
    whole = whole or _parse(source, form, 0, 1)
    contents = form.combine(source.path, [form.report(whole)])
    return store.in_memory(contents, form.pieces(whole, contents, []))


@dataclass
class _Writing:
    """How the ranks of a host write a store together; each step gets what the last one gave, by rank there."""

    source: Source
    kind: str
    team: Team
    contents: Contents
    pieces: Iterator[Piece]
    place: str
    path: str = ""
    stored: Store | None = None

    def begin(self, _: list[Any]) -> str:
        if self.team.index == 0:
            self.path = cache.begin(self.source, self.kind, self.place, self.contents)
        return self.path

    def write(self, paths: list[Any]) -> None:
        self.path = paths[0]
        store.write(self.path, self.contents, self.pieces)

    def take_checksums(self, _: list[Any]) -> list[int]:
        self.columns = store.map_columns(self.path, self.contents)
        return store.take_checksums(self.columns, self.team.index, self.team.size)

    def seal(self, taken: list[Any]) -> None:
        checksums = [0] * sum(map(len, taken))
        for part, some in enumerate(taken):
            checksums[part :: len(taken)] = some
        self.stored = store.mapped(self.columns, self.contents, checksums)
        if self.team.index == 0:
            store.seal(self.path, self.kind, self.source.state, self.contents, checksums)

    def end(self, is_done: bool) -> None:
        if self.team.index == 0 and is_done:
            cache.publish(self.source, self.kind, self.path)
        elif self.team.index == 0 and self.path:
            cache.discard(self.path)


def _written(writing: _Writing | None, team: Team) -> Store | None:
    """Take all steps of `writing`, or only take part in the calls. None where a step failed. Collective."""
    given: list[Any] | None = []
    try:
        for step in (_Writing.begin, _Writing.write, _Writing.take_checksums, _Writing.seal):
            given = team.step(None if writing is None or given is None else partial(step, writing, given))
    except Incomplete:
        if writing is not None and writing.path:
            cache.discard(writing.path)
        raise
    if writing is None:
        return None
    writing.end(is_done=given is not None)
    return writing.stored if given is not None else None
