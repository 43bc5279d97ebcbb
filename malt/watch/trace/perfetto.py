"""A trace as one file for Perfetto (ui.perfetto.dev): the JSON of Chrome's trace events. Each rank is a process.

A message is an arrow from the end of its scatter to the end of the gather that merged it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from malt.watch.trace.layout import Kind
from malt.watch.trace.reading import RankTrace, Trace

MOST_EVENTS = 200_000
"""The most events that are written, the newest: some 30 MB, which Perfetto shows at once."""
_SLICES = {
    Kind.SCATTER: "scatter", Kind.GATHER: "gather", Kind.WAIT: "wait", Kind.YIELD: "yields its core", Kind.CALL: "call"
}  # fmt: skip
_INSTANTS = {Kind.FAILED: "rank {} has failed", Kind.OVERWRITTEN: "overwritten, of rank {}"}


def write(trace: Trace, path: Path) -> int:
    """Write `trace` to `path`; return how many older events were left out. Local. OSError."""
    since, left_out = _cut(trace)
    with path.open("w", encoding="utf-8") as file:
        file.write('{"displayTimeUnit":"ms","otherData":' + json.dumps(_about(trace, left_out)) + ',"traceEvents":[\n')
        events = (event for rank in trace.ranks for event in _events(rank, since, trace))
        file.write(",\n".join(json.dumps(event, separators=(",", ":")) for event in events))
        file.write("\n]}\n")
    return left_out


def _about(trace: Trace, left_out: int) -> dict[str, Any]:
    return {
        "program": " ".join(trace.job.get("program", [])), "ranks": trace.size, "older events left out": left_out,
        "error of the clocks in s": max(rank.error_s for rank in trace.ranks),
    }  # fmt: skip


def _cut(trace: Trace) -> tuple[float, int]:
    """The time from which on events are written, and how many are older."""
    starts = np.concatenate([rank.records["start"] for rank in trace.ranks])
    dropped = sum(rank.dropped for rank in trace.ranks)
    if len(starts) <= MOST_EVENTS:
        return -np.inf, dropped
    since = float(np.partition(starts, -MOST_EVENTS)[-MOST_EVENTS])
    return since, dropped + int((starts < since).sum())


def _events(rank: RankTrace, since: float, trace: Trace) -> Iterator[dict[str, Any]]:
    pid = rank.rank
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"rank {pid}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    records = rank.records[rank.records["start"] >= since]
    awaited: dict[float, list[int]] = {}
    for record in records[records["kind"] == Kind.WAITED]:
        awaited.setdefault(float(record["start"]), []).append(int(record["peer"]))
    for start, seconds, kind, thread, peer, name, _, step, value in records.tolist():
        at = {"pid": pid, "tid": thread, "ts": round(start * 1e6, 3)}
        text = rank.names[name] if name < len(rank.names) else ""
        if kind in _SLICES:
            about = _arguments(kind, text, step, value)
            if kind == Kind.WAIT:
                about = {"call": text, "for ranks": awaited.get(start, [])}
            yield {"ph": "X", "name": _name(kind, text), "cat": _SLICES[kind], "dur": round(seconds * 1e6, 3), **at,
                   "args": about}  # fmt: skip
        elif kind in _INSTANTS:
            yield {"ph": "i", "s": "p", "name": _INSTANTS[kind].format(peer), "cat": "failure", **at,
                   "args": {"messages": value} if kind == Kind.OVERWRITTEN else {}}  # fmt: skip
        elif kind == Kind.SENT:
            yield {"ph": "s", "name": "message", "cat": "message", "id": f"{name}.{pid}.{peer}.{step}", **at}
        elif kind == Kind.MERGED:
            sender = f"{name}.{peer}.{pid}.{step}"
            yield {"ph": "f", "bp": "e", "name": "message", "cat": "message", "id": sender, **at}
    for report in trace.metrics:
        if report["rank"] == pid and report["time"] >= since and isinstance(report.get("loss"), (int, float)):
            yield {"ph": "C", "name": "loss", "pid": pid, "ts": round(report["time"] * 1e6),
                   "args": {"loss": report["loss"]}}  # fmt: skip


def _name(kind: int, text: str) -> str:
    return text if kind == Kind.CALL else f"{_SLICES[Kind(kind)]} {text.partition(':')[0]}".rstrip()


def _arguments(kind: int, text: str, step: int, value: int) -> dict[str, Any]:
    if kind == Kind.SCATTER:
        return {"vector": text, "step": step, "bytes": value}
    return {"vector": text, "step": step, "messages": value} if kind == Kind.GATHER else {}
