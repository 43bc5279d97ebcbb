"""Summarizes a trace: the activity of each rank over time, its waits by peer, and the traffic of each edge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from malt.watch.split import Split, split
from malt.watch.trace.layout import HOST, TOTALS, Kind
from malt.watch.trace.reading import RankTrace, Records, Trace

Floats = NDArray[np.float64]
ACTIVITIES = ("compute", "send", "merge", "wait", "yield", "collective")
"""What a rank does at any moment. compute: all that is none of the others. collective: a call of all ranks, but for the
waits in it. yield: it gives its core to peers that are behind."""
_COVERING = (
    ("wait", Kind.WAIT), ("yield", Kind.YIELD), ("send", Kind.SCATTER), ("merge", Kind.GATHER),
    ("collective", Kind.CALL),
)  # fmt: skip
"""Where records overlap, the first of these counts."""


@dataclass
class Summary:
    """The summary of a trace. Times are in seconds, since the run began."""

    ranks: list[int]
    """The ranks that left events."""
    edges: Floats
    """The bins of the timeline: their edges."""
    timeline: Floats
    """Of shape (ranks, ACTIVITIES, bins): seconds."""
    exchanging: float
    """When the first scatter began. Before it ranks read and compile: what follows is from then on."""
    spent: Floats
    """Of shape (ranks, ACTIVITIES): seconds."""
    waited: Floats
    """Of shape (ranks, peers): seconds for which a rank waited for a peer."""
    nbytes: Floats
    """Of shape (size, size): bytes from a rank to another one, of the run."""
    nbytes_across: float
    """Those of the bytes that went to another host. 0: there is one host."""
    merged: int
    overwritten: int
    lags: list[tuple[int, int]]
    """How many steps behind, and how many messages, of those in the events."""
    losses: list[tuple[int, int]]
    """How many messages were overwritten between two that were merged, and how often, of those in the events."""
    failures: list[tuple[int, float]]
    """The ranks that failed, and when that was first seen."""
    vectors: list[str]
    """What was exchanged."""
    dropped: int
    """How many events are missing."""
    calls: list[tuple[str, float, int]] = field(default_factory=list)
    """Collective calls, the seconds spent in them by all ranks, and how many there were."""
    split: list[Split] = field(default_factory=list)
    """The seconds of each rank, from the start of the launcher up to its last event."""

    @property
    def seconds(self) -> float:
        """The length of the timeline, in seconds."""
        return float(self.edges[-1] - self.edges[0])

    @property
    def shares(self) -> Floats:
        """Of shape (ranks, ACTIVITIES): the part of its time for which a rank did what."""
        shares: Floats = self.spent / np.maximum(self.spent.sum(axis=1), 1e-12)[:, None]
        return shares


def summarize(trace: Trace, bins: int = 120) -> Summary:
    """Return the summary of `trace`. Local."""
    since = trace.since
    edges = np.linspace(since, max(trace.until, since + 1e-6), bins + 1)
    totals = {rank.rank: dict(zip(TOTALS, rank.totals.T, strict=True)) for rank in trace.ranks}
    nbytes = np.zeros((trace.size, trace.size))
    for rank, total in totals.items():
        nbytes[rank] += total["nbytes"]
        nbytes[:, rank] += total["nbytes_read"]
    merged = np.concatenate([rank.of(Kind.MERGED)["value"] for rank in trace.ranks])
    firsts = [float(found["start"][0]) for rank in trace.ranks if len(found := rank.of(Kind.SCATTER))]
    exchanging = max(since, min(firsts, default=since))
    period = np.array([exchanging, edges[-1]])
    return Summary(
        ranks=[rank.rank for rank in trace.ranks],
        edges=edges,
        timeline=np.array([_timeline(rank, edges) for rank in trace.ranks]),
        exchanging=exchanging,
        spent=np.array([_timeline(rank, period)[:, 0] for rank in trace.ranks]),
        waited=np.array([_waited(rank, exchanging, trace.size) for rank in trace.ranks]),
        nbytes=nbytes,
        nbytes_across=_across(nbytes, trace.ranks),
        merged=int(sum(total["merged"].sum() for total in totals.values())),
        overwritten=int(sum(total["overwritten"].sum() for total in totals.values())),
        lags=_counted(merged),
        losses=_losses(trace.ranks),
        failures=_failures(trace.ranks),
        vectors=list(dict.fromkeys(name for rank in trace.ranks for name in rank.names if ": " in name)),
        dropped=sum(rank.dropped for rank in trace.ranks),
        calls=_calls(trace.ranks),
        split=[_split(rank) for rank in trace.ranks],
    )


def _split(rank: RankTrace) -> Split:
    """Return where old events are missing, training and waiting are of the time after them."""
    if rank.trains is None:
        return split(rank.until - rank.launched, None, 0.0)
    since = max(rank.trains, rank.since)
    trained_s = max(rank.until - since, 0.0)
    waits = _timeline(rank, np.array([since, since + trained_s]))[ACTIVITIES.index("wait"), 0]
    return split(rank.trains - rank.launched + trained_s, trained_s, float(waits))


def _timeline(rank: RankTrace, edges: Floats) -> Floats:
    """Of shape (ACTIVITIES, bins): seconds of its first thread."""
    found, covered = {}, np.zeros(len(edges) - 1)
    records = rank.records[rank.records["thread"] == 0]
    kinds: list[Kind] = []
    for activity, kind in _COVERING:
        kinds.append(kind)
        now = np.diff(_coverage(records[np.isin(records["kind"], kinds)], edges))
        found[activity], covered = now - covered, now
    last = np.clip(rank.until - edges[:-1], 0, np.diff(edges))  # a rank that has failed computes no longer
    found["compute"] = np.maximum(last - covered, 0)
    return np.array([found[activity] for activity in ACTIVITIES])


def _across(nbytes: Floats, ranks: Sequence[RankTrace]) -> float:
    """The bytes between ranks of different hosts. A rank that left no events is of none."""
    hosts = {rank.rank: name for rank in ranks for name in rank.names if name.startswith(HOST)}
    return float(sum(nbytes[a, b] for a in hosts for b in hosts if hosts[a] != hosts[b]))


def _coverage(records: Records, times: Floats) -> Floats:
    """For how many seconds up to each of `times` any of the records lasted. They may overlap."""
    if not len(records):
        return np.zeros(len(times))
    starts = records["start"]
    ends = np.maximum.accumulate(starts + records["seconds"])
    begun = np.maximum(starts, np.concatenate([[-np.inf], ends[:-1]]))  # what an earlier one covers counts once
    lasted = np.concatenate([[0.0], np.cumsum(np.maximum(ends - begun, 0))])
    places = np.searchsorted(begun, times, side="right")
    within = np.maximum(ends[np.maximum(places - 1, 0)] - times, 0)
    return np.where(places > 0, lasted[places] - within, 0.0)


def _waited(rank: RankTrace, since: float, size: int) -> Floats:
    """Seconds by peer."""
    records = rank.of(Kind.WAITED)
    records = records[(records["start"] >= since) & (records["peer"] >= 0) & (records["peer"] < size)]
    return np.bincount(records["peer"], records["seconds"], size).astype(np.float64)


def _losses(ranks: Sequence[RankTrace]) -> list[tuple[int, int]]:
    """As Summary.losses: none is as many as there were merges without."""
    values = np.concatenate([rank.of(Kind.OVERWRITTEN)["value"] for rank in ranks])
    merged = sum(len(rank.of(Kind.MERGED)) for rank in ranks)
    return [(0, max(0, merged - len(values))), *_counted(values)]


def _counted(values: NDArray[np.int64]) -> list[tuple[int, int]]:
    found, counts = np.unique(values, return_counts=True)
    return list(zip(found.tolist(), counts.tolist(), strict=True))


def _failures(ranks: Sequence[RankTrace]) -> list[tuple[int, float]]:
    seen: dict[int, float] = {}
    for rank in ranks:
        for record in rank.of(Kind.FAILED):
            peer, at = int(record["peer"]), float(record["start"])
            seen[peer] = min(at, seen.get(peer, at))
    return sorted(seen.items(), key=lambda failure: failure[1])


def _calls(ranks: Sequence[RankTrace]) -> list[tuple[str, float, int]]:
    found: dict[str, tuple[float, int]] = {}
    for rank in ranks:
        records = rank.of(Kind.CALL)
        for number in np.unique(records["name"]).tolist():
            mine = records[records["name"] == number]
            name = rank.names[number] if number < len(rank.names) else "?"
            seconds, count = found.get(name, (0.0, 0))
            found[name] = seconds + float(mine["seconds"].sum()), count + len(mine)
    calls = [(name, seconds, count) for name, (seconds, count) in found.items()]
    return sorted(calls, key=lambda call: -call[1])
