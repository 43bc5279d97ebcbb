"""A trace as one file for Perfetto (ui.perfetto.dev): the JSON of Chrome's trace events. Each rank is a process.

As Perfetto's importer wants it, slices of a thread are nested.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.watch.trace.layout import Kind
from malt.watch.trace.reading import RankTrace, Trace

MOST_EVENTS = 200_000
"""The most events that are written, the newest: some 30 MB, which Perfetto shows at once."""
_SLICES = {
    Kind.SCATTER: "scatter", Kind.GATHER: "gather", Kind.WAIT: "wait", Kind.YIELD: "yields its core", Kind.CALL: "call"
}  # fmt: skip
_INSTANTS = {Kind.FAILED: "rank {} has failed", Kind.OVERWRITTEN: "overwritten, of rank {}"}


Event = dict[str, Any]


def write(trace: Trace, path: Path) -> int:
    """Write `trace` to `path`; return how many older events were left out. Local. OSError."""
    since, left_out = _cut(trace)
    zero = min([0.0, *(float(rank.records["start"].min()) for rank in trace.ranks if len(rank.records))])
    events = [event for rank in trace.ranks for event in _events(rank, since, zero)]
    events.sort(key=lambda event: (event["ts"], -event.get("dur", -1.0)))  # of one time slices first, the longest first
    names = [event for rank in trace.ranks for event in _names(rank)]
    made = {"displayTimeUnit": "ms", "otherData": _about(trace, left_out), "traceEvents": [*names, *events]}
    path.write_text(json.dumps(made), encoding="utf-8")
    return left_out


def _about(trace: Trace, left_out: int) -> dict[str, Any]:
    return {
        "program": " ".join(trace.job.get("program", [])), "ranks": trace.size, "older events left out": left_out,
        "error of the clocks in s": max(rank.error_s for rank in trace.ranks),
    }  # fmt: skip


def _cut(trace: Trace) -> tuple[float, int]:
    """The time from which on events are written, and how many are older."""
    starts = np.concatenate([rank.of(*_SLICES, *_INSTANTS)["start"] for rank in trace.ranks])
    dropped = sum(rank.dropped for rank in trace.ranks)
    if len(starts) <= MOST_EVENTS:
        return -np.inf, dropped
    since = float(np.partition(starts, -MOST_EVENTS)[-MOST_EVENTS])
    return since, dropped + int((starts < since).sum())


def _events(rank: RankTrace, since: float, zero: float) -> Iterator[Event]:
    """The events of one rank. `zero`: the first one of all: an earlier session of a process may have begun before 0."""
    pid, records = rank.rank, rank.records[rank.records["start"] >= since]
    awaited: dict[float, list[int]] = {}
    for record in records[records["kind"] == Kind.WAITED]:
        awaited.setdefault(float(record["start"]), []).append(int(record["peer"]))
    ends: dict[int, list[float]] = {}
    for start, seconds, kind, thread, peer, number, _, step, value in _nested(records).tolist():
        ts = round((start - zero) * 1e6, 3)
        at = {"pid": pid, "tid": thread + 1, "ts": ts}
        if kind in _SLICES:
            lasted = _within(ends.setdefault(thread, []), ts, round(seconds * 1e6, 3))
            what, name = _SLICES[Kind(kind)], rank.names[number] if number < len(rank.names) else ""
            shown = name if kind == Kind.CALL and name else f"{what} {name.partition(':')[0]}".rstrip()
            about = _about_slice(kind, step, value, awaited.get(start, []))
            yield {"ph": "X", "name": shown, "cat": what, "dur": lasted, **at, "args": about}
        elif kind in _INSTANTS:
            about = {"messages": value} if kind == Kind.OVERWRITTEN else {}
            yield {"ph": "i", "s": "p", "name": _INSTANTS[kind].format(peer), **at, "args": about}


def _nested(records: NDArray[np.void]) -> NDArray[np.void]:
    """The records by their start; of those that begin at once, the longest first."""
    return records[np.lexsort((-records["seconds"], records["start"]))]


def _within(ends: list[float], ts: float, lasted: float) -> float:
    """Return the rounded duration of a slice that ends no later than those around it. Changes `ends`."""
    while ends and ends[-1] <= ts:
        ends.pop()
    lasted = min([lasted, *(round(end - ts, 3) for end in ends[-1:])])
    ends.append(ts + lasted)
    return lasted


def _names(rank: RankTrace) -> Iterator[Event]:
    """The events that name a rank and its threads."""
    about = {"ph": "M", "pid": rank.rank, "tid": 1}
    yield {**about, "name": "process_name", "args": {"name": f"rank {rank.rank}"}}
    yield {**about, "name": "process_sort_index", "args": {"sort_index": rank.rank}}
    for thread in np.unique(rank.records["thread"]).tolist():
        name = f"thread {thread + 1}" if thread else "the program"
        yield {**about, "name": "thread_name", "tid": thread + 1, "args": {"name": name}}


def _about_slice(kind: int, step: int, value: int, peers: list[int]) -> dict[str, Any]:
    if kind in (Kind.SCATTER, Kind.GATHER):
        return {"step": step, "bytes" if kind == Kind.SCATTER else "messages": value}
    return {"for ranks": peers} if kind == Kind.WAIT else {}
