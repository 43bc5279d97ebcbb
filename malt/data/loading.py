"""Loading the store of a text file on all ranks: from the cache, or parsed and stored by the ranks of each host.

All ranks make the same collective calls; on a host whose cache has the store they have no work. The ranks of a host use
the store of that host. At the end all ranks check that all hosts have the same columns.
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
from malt.data.reader_group import Incomplete, ReaderGroup, with_reader_group
from malt.data.store import Contents, Piece, Store
from malt.session.world.agreement import succeed

CLOCK_TICK_NS: Final = 20_000_000
"""More than a tick of the file clock of any kernel (10 ms). A file written later than that gets another time."""
PLACES: Final = 2
Part = TypeVar("Part")


@dataclass(frozen=True)
class Format(Generic[Part]):
    """The functions that turn a text file into the columns of a store. All are local."""

    kind: str
    """The kind of its stores, unique to the format."""
    read: Callable[[str, int, int], Part]
    """read(path, part, parts) returns part `part` of `parts` of a file, parsed. Raises OSError, ValueError."""
    report: Callable[[Part], Any]
    """report(part) returns what the other ranks need to know of a part, as a JSON-like value."""
    combine: Callable[[str, list[Any]], Contents]
    """combine(path, reports) returns the contents of the store of all parts. ValueError: a part has a bad line."""
    pieces: Callable[[Part, Contents, list[Any]], Iterator[Piece]]
    """pieces(part, contents, reports) yields the values of a part. `reports` are those of all parts before it."""
    check: Callable[[Store], object]
    """check(store) raises one of store.DAMAGES if the store does not fit this format."""


def shared(path: str, form: Format[Any], transport: Transport) -> Store:
    """Return the store of a file, with the same columns on all ranks. Collective.

    The ranks of a host share one mapped file. If no folder can be the cache, each rank has the columns in memory. All
    ranks raise the same error. OSError: the file cannot be read. ValueError: it is not of that format, is empty,
    changes meanwhile or differs between hosts.
    """
    return with_reader_group(transport, lambda group: _of_group(path, form, group))


def _of_group(path: str, form: Format[Any], group: ReaderGroup) -> Store:
    source = succeed(group.transport, lambda: Source.of(path))
    found = succeed(group.transport, lambda: _find(source, form, group))
    hashes = group.exchange(found and found.identity())
    if any(hashes[rank] is None or hashes[rank] != hashes[ranks[0]] for ranks in group.hosts for rank in ranks):
        is_cached = len({hashes[rank] for rank in group.ranks}) == 1
        found = _build(source, form, group, found if is_cached else None)
    assert found is not None
    group.check_same(path, found.identity())
    return found


def _find(source: Source, form: Format[Any], group: ReaderGroup) -> Store | None:
    found = cache.find(source, form.kind, group.index, group.size)
    try:
        if found is not None:
            form.check(found)
    except store.DAMAGES:
        return None
    return found


def _build(source: Source, form: Format[Any], group: ReaderGroup, stored: Store | None) -> Store:
    """Parse the file, write the store if a folder can hold it, and return it. Collective.

    With `stored`, only take part in the collective calls.
    """
    part = succeed(group.transport, lambda: None if stored else _parse(source, form, group.index, group.size))
    reports = group.exchange(None if stored else [form.report(part)])
    contents = None
    for ranks in group.hosts:  # those of other hosts too, so that all ranks raise the same error
        if all(reports[rank] for rank in ranks):
            combined = form.combine(source.path, [reports[rank][0] for rank in ranks])
            contents = combined if ranks == group.ranks else contents
    for number in range(PLACES):
        writing = None
        if stored is None and contents is not None:
            before = [reports[rank][0] for rank in group.ranks[: group.index]]
            pieces = form.pieces(part, contents, before)
            writing = _Writing(source, form.kind, group, contents, pieces, cache.places(source.path)[number])
        stored = _written(writing, group) or stored
    return succeed(group.transport, lambda: stored or _in_memory(source, form, part if group.size == 1 else None))


def _parse(source: Source, form: Format[Part], part: int, parts: int) -> Part:
    """Return part `part` of `parts` of the file, parsed. Local.

    OSError: the file cannot be read. ValueError: it is not of that format, or is no longer in the state `source`.
    """
    if 0 <= time.time_ns() - source.ctime_ns < CLOCK_TICK_NS:
        # The file was written just now. Another write could leave the same time, which the cache would not notice.
        time.sleep(CLOCK_TICK_NS / 1e9)
    before = Source.of(source.path)
    result = form.read(source.path, part, parts)
    if not source == before == Source.of(source.path):
        raise ValueError(f"{source.path}: the file changed while it was read: load it again once it is written")
    return result


def _in_memory(source: Source, form: Format[Any], whole: Any) -> Store:
    """Return the columns in memory of this process. Local. `whole`: the whole file, if this rank has parsed it."""
    whole = whole or _parse(source, form, 0, 1)
    contents = form.combine(source.path, [form.report(whole)])
    return store.in_memory(contents, form.pieces(whole, contents, []))


@dataclass
class _Writing:
    """The steps in which the ranks of a host write a store together.

    Each step gets the results of the step before, in the order of the ranks of this host.
    """

    source: Source
    kind: str
    group: ReaderGroup
    contents: Contents
    pieces: Iterator[Piece]
    place: str
    path: str = ""
    stored: Store | None = None

    def begin(self, _: list[Any]) -> str:
        """Make the file, on the first rank; return its path, or "". Local."""
        if self.group.index == 0:
            self.path = cache.begin(self.source, self.kind, self.place, self.contents)
        return self.path

    def write(self, paths: list[Any]) -> None:
        """Write the pieces of this rank. Local."""
        self.path = paths[0]
        store.write(self.path, self.contents, self.pieces)

    def take_checksums(self, _: list[Any]) -> list[int]:
        """Map what all have written; return the checksums of this rank's share of the blocks. Local."""
        self.columns = store.map_columns(self.path, self.contents)
        return store.take_checksums(self.columns, self.group.index, self.group.size)

    def seal(self, taken: list[Any]) -> None:
        """Write down the checksums of all ranks, on the first. Local."""
        checksums = [0] * sum(map(len, taken))
        for part, some in enumerate(taken):
            checksums[part :: len(taken)] = some
        self.stored = store.mapped(self.columns, self.contents, checksums)
        if self.group.index == 0:
            store.seal(self.path, self.kind, self.source.state, self.contents, checksums)

    def end(self, is_done: bool) -> None:
        """Publish the file, or remove it, on the first rank. Local."""
        if self.group.index == 0 and is_done:
            cache.publish(self.source, self.kind, self.path)
        elif self.group.index == 0 and self.path:
            cache.discard(self.path)


def _written(writing: _Writing | None, group: ReaderGroup) -> Store | None:
    """Take all steps of `writing`, and return the store; None if a step failed. Collective.

    Without `writing`, only take part in the collective calls.
    """
    given: list[Any] | None = []
    try:
        for step in (_Writing.begin, _Writing.write, _Writing.take_checksums, _Writing.seal):
            given = group.step(None if writing is None or given is None else partial(step, writing, given))
    except Incomplete:
        if writing is not None and writing.path:
            cache.discard(writing.path)
        raise
    if writing is None:
        return None
    writing.end(is_done=given is not None)
    return writing.stored if given is not None else None
