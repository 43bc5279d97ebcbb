"""The rows of an svmlight file for all ranks: from its cache, or parsed and put there by the ranks of each host.

All ranks go through the same collective calls; those of a host that has its cache just have nothing to do. What a
host made is used by its ranks only, and that all hosts have the same rows is checked at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np

from dstorm import Transport
from malt.agreement import exchange, succeed
from malt.data import rowcache, rowfolder, svmlight
from malt.data.rowcache import Source
from malt.data.rowfolder import Checksums, StoredRows, Summary
from malt.data.svmlight import Part

CLOCK_TICK_NS: Final = 20_000_000
"""More than a tick of any kernel's file clock (10 ms): what is written later than that has another time."""
REPORTED_LABELS: Final = 3
"""As many different labels tell two classes from more."""
PLACES: Final = 2
Result = TypeVar("Result")


class Incomplete(Exception):
    """A rank of the team has died."""


class Team:
    """The ranks that live, and those of them that share memory and files with this one: those of its host. Collective.

    Where one dies all that its members do together raises Incomplete, on all of them alike."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.living = list(exchange(transport, None))
        self.ranks = self.beside(transport.rank)
        self.index = self.ranks.index(transport.rank)
        self.size = len(self.ranks)

    def beside(self, rank: int) -> list[int]:
        """Those of the host of `rank`, ascending."""
        return [other for other in self.living if self.transport.hosts[other] == self.transport.hosts[rank]]

    def exchange(self, value: Any) -> dict[int, Any]:
        """What each member gave, by rank, as `malt.agreement.exchange`. Collective. Incomplete."""
        said = exchange(self.transport, value)
        if said.keys() != set(self.living):
            raise Incomplete
        return said

    def check_same(self, path: str, identity: str) -> None:
        """ValueError: hosts have different files at `path`. Collective. Incomplete."""
        found, hosts = self.exchange(identity if self.index == 0 else None), self.transport.hosts
        for rank in self.living:
            if found[self.beside(rank)[0]] != found[self.living[0]]:
                raise ValueError(f"{path}: hosts {hosts[self.living[0]]} and {hosts[rank]} have different files")

    def step(self, work: Callable[[], Any] | None) -> list[Any] | None:
        """What work() gave, by rank of this host; None where one had none to do or met an OSError. Collective."""

        def tried() -> list[Any] | None:
            try:
                return None if work is None else [work()]
            except OSError:  # no place to write, or no room: there may be another
                return None

        said = self.exchange(succeed(self.transport, tried))
        done = [said[rank] for rank in self.ranks if said[rank] is not None]
        return [result for (result,) in done] if len(done) == self.size else None


def with_a_team(transport: Transport, work: Callable[[Team], Result]) -> Result:
    """What work(team) returned, of a team of which nobody died meanwhile. Collective."""
    while True:
        with suppress(Incomplete):
            return work(Team(transport))


@dataclass(frozen=True)
class Report:
    """What a rank tells of the part that it has parsed."""

    lines: int
    rows: int
    nonzeros: int
    smallest: int | None
    """The smallest index, and the largest."""
    largest: int | None
    largest_line: int
    """Where that is, counted from 1 in this part."""
    labels: list[float]
    """The three smallest different ones."""
    problem: tuple[int, str] | None
    """The bad line, counted from 1 in this part, and what is wrong with it."""

    @classmethod
    def of(cls, part: Part) -> Report:
        filled = [chunk.indices for chunk in part.chunks if chunk.indices.size]
        labels = [np.unique(chunk.labels)[:REPORTED_LABELS] for chunk in part.chunks]
        return cls(
            lines=part.lines,
            rows=sum(chunk.labels.size for chunk in part.chunks),
            nonzeros=sum(indices.size for indices in filled),
            smallest=min((int(indices.min()) for indices in filled), default=None),
            largest=part.largest if filled else None,
            largest_line=part.largest_line,
            labels=np.unique(np.concatenate(labels))[:REPORTED_LABELS].tolist() if labels else [],
            problem=None if part.problem is None else (part.problem.line, part.problem.what),
        )


@dataclass(frozen=True)
class Layout:
    """Where the rows of a rank go among those of its host, and what all of them are."""

    summary: Summary
    first_row: int
    first_nonzero: int
    base: int
    """The index of column 0 in the file."""

    @classmethod
    def of(cls, reports: list[Report], index: int) -> Layout:
        """For the part `index` of those reported."""
        smallest = min((report.smallest for report in reports if report.smallest is not None), default=1)
        largest = max((report.largest for report in reports if report.largest is not None), default=0)
        widest = [place for place, report in enumerate(reports) if report.largest == largest][:1]
        base = 0 if smallest == 0 else 1
        labels = sorted({label for report in reports for label in report.labels})[:REPORTED_LABELS]
        summary = Summary(
            rows=sum(report.rows for report in reports),
            nonzeros=sum(report.nonzeros for report in reports),
            zero_based=base == 0,
            columns=largest + 1 - base,
            labels=tuple(labels),
            largest_line=sum(
                sum(one.lines for one in reports[:place]) + reports[place].largest_line for place in widest
            ),
        )
        before = reports[:index]
        return cls(summary, sum(one.rows for one in before), sum(one.nonzeros for one in before), base)


def shared_rows(path: str, transport: Transport) -> StoredRows:
    """All rows of a file, the same on all ranks; mapped, and shared within a host, where a cache can be. Collective.

    On all ranks alike: OSError, where the file cannot be read; ValueError, where it is not svmlight, has no rows,
    changes meanwhile or is not the same on all hosts.
    """
    return with_a_team(transport, lambda team: _rows_of_team(path, transport, team))


def _rows_of_team(path: str, transport: Transport, team: Team) -> StoredRows:
    source = succeed(transport, lambda: Source.of(path))
    stored = succeed(transport, lambda: rowcache.find(source, team.index, team.size))
    found = team.exchange(stored and stored.identity())
    if None in found.values() or any(found[rank] != found[team.beside(rank)[0]] for rank in team.living):
        has_cache = len({found[rank] for rank in team.ranks}) == 1
        stored = _build(source, team, stored if has_cache else None)
    assert stored is not None
    team.check_same(path, stored.identity())
    return stored


def _build(source: Source, team: Team, stored: StoredRows | None) -> StoredRows:
    """Parse the file and keep the rows if there is a place; with `stored`, only take part in the calls. Collective."""
    part = succeed(team.transport, lambda: None if stored else _parse(source, team.index, team.size))
    told = team.exchange(part and vars(Report.of(part)))
    reports = {rank: None if one is None else Report(**one) for rank, one in told.items()}
    _raise_first_problem(source.path, team, reports)
    layout = Layout.of([one for rank in team.ranks if (one := reports[rank])], team.index)
    for number in range(PLACES):
        making = _Making(source, team, part, layout, number) if stored is None and part is not None else None
        stored = _make(making, team) or stored
    return succeed(team.transport, lambda: stored or _keep_in_memory(source, team, part, layout))


def _parse(source: Source, part: int, parts: int) -> Part:
    """Part `part` of `parts` of the file, which stays in the state `source` meanwhile. Raises OSError, ValueError."""
    if 0 <= time.time_ns() - source.mtime_ns < CLOCK_TICK_NS:
        # Written to just now, and so again without a new time: the cache could not tell one from the other.
        time.sleep(CLOCK_TICK_NS / 1e9)
    before = Source.of(source.path)
    result = svmlight.read_part(source.path, part, parts)
    if not source == before == Source.of(source.path):
        raise ValueError(f"{source.path}: the file changed while it was read: load it again once it is written")
    return result


def _raise_first_problem(path: str, team: Team, reports: Mapping[int, Report | None]) -> None:
    """ValueError for the first bad line of the first host that has one, or where a host found no rows."""
    for rank, report in reports.items():
        beside = [one for other in team.beside(rank) if (one := reports[other])]
        if report and report.problem:
            line, what = report.problem
            # The parts before are whole, or theirs would have been the first problem.
            before = sum(one.lines for one in beside[: beside.index(report)])
            raise ValueError(f"{path}:{before + line}: {what}")
        if report and not any(one.rows or one.problem for one in beside):
            raise ValueError(f"{path}: there are no rows in it, only blank lines and comments")


class _Making:
    """How the ranks of a host make a row folder together; each step gets what the last one gave, by rank there."""

    def __init__(self, source: Source, team: Team, part: Part, layout: Layout, number: int) -> None:
        self.source, self.team, self.part, self.layout = source, team, part, layout
        self.place = rowcache.places(source.path)[number]
        self.folder = ""
        self.stored: StoredRows | None = None

    def begin(self, _: list[Any]) -> str:
        if self.team.index == 0:
            self.folder = rowcache.begin(self.source, self.place, self.layout.summary)
        return self.folder

    def write(self, folders: list[Any]) -> None:
        self.folder = folders[0]
        layout = self.layout
        rowfolder.write(self.folder, self.part.chunks, layout.first_row, layout.first_nonzero, layout.base)

    def take_checksums(self, _: list[Any]) -> Checksums:
        rows = rowfolder.map_rows(self.folder, self.layout.summary)
        return rowfolder.take_checksums(rows, self.team.index, self.team.size)

    def seal(self, taken: list[Any]) -> None:
        if self.team.index == 0:
            checksums = {name: checksum for some in taken for name, checksum in some.items()}
            rowfolder.seal(self.folder, self.source.state, self.layout.summary, checksums)

    def open(self, _: list[Any]) -> None:
        self.stored = rowfolder.open_folder(self.folder, self.source.state, self.team.index, self.team.size)
        if self.stored is None:
            raise OSError(f"{self.folder} is not what was written")

    def end(self, is_made: bool) -> None:
        if self.team.index == 0 and is_made:
            rowcache.publish(self.source, self.folder)
        elif self.team.index == 0 and self.folder:
            rowcache.discard(self.folder)


def _make(making: _Making | None, team: Team) -> StoredRows | None:
    """Take all steps of `making`, or only take part in the calls. None where a step failed. Collective."""
    given: list[Any] | None = []
    try:
        for step in (_Making.begin, _Making.write, _Making.take_checksums, _Making.seal, _Making.open):
            given = team.step(None if making is None or given is None else partial(step, making, given))
    except Incomplete:
        if making is not None and making.folder:
            rowcache.discard(making.folder)
        raise
    if making is None:
        return None
    making.end(is_made=given is not None)
    return making.stored if given is not None else None


def _keep_in_memory(source: Source, team: Team, part: Part | None, layout: Layout) -> StoredRows:
    """The rows in memory of this process: every rank parses them all."""
    whole = part if part is not None and team.size == 1 else _parse(source, 0, 1)
    return rowfolder.in_memory(whole.chunks, layout.summary, layout.base)
