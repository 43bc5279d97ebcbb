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
        file.write(",\n".join(events))
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


def _events(rank: RankTrace, since: float, trace: Trace) -> Iterator[str]:
    """The events of one rank, each as JSON. The text is put together by hand: json.dumps takes four times as long."""
    pid = rank.rank
    yield _dumped("M", "process_name", pid, args={"name": f"rank {pid}"})
    yield _dumped("M", "process_sort_index", pid, args={"sort_index": pid})
    records = rank.records[rank.records["start"] >= since]
    awaited: dict[float, list[int]] = {}
    for record in records[records["kind"] == Kind.WAITED]:
        awaited.setdefault(float(record["start"]), []).append(int(record["peer"]))
    begins: dict[tuple[int, int], str] = {}
    for start, seconds, kind, thread, peer, name, _, step, value in records.tolist():
        at = f'"pid":{pid},"tid":{thread},"ts":{start * 1e6:.3f}'
        if kind in _SLICES:
            if (begin := begins.get((kind, name))) is None:
                begin = begins[kind, name] = _begin(kind, rank.names[name] if name < len(rank.names) else "")
            about = _about_slice(kind, step, value, awaited.get(start, []))
            yield f'{begin},"dur":{seconds * 1e6:.3f},{at},"args":{{{about}}}}}'
        elif kind == Kind.SENT:
            yield f'{{"ph":"s","name":"message","cat":"message","id":"{name}.{pid}.{peer}.{step}",{at}}}'
        elif kind == Kind.MERGED:
            yield f'{{"ph":"f","bp":"e","name":"message","cat":"message","id":"{name}.{peer}.{pid}.{step}",{at}}}'
        elif kind in _INSTANTS:
            about = f'"messages":{value}' if kind == Kind.OVERWRITTEN else ""
            yield f'{{"ph":"i","s":"p","name":"{_INSTANTS[kind].format(peer)}",{at},"args":{{{about}}}}}'
    for report in trace.metrics:
        if report["rank"] == pid and report["time"] >= max(since, 0) and isinstance(report.get("loss"), (int, float)):
            yield _dumped("C", "loss", pid, ts=round(report["time"] * 1e6), args={"loss": report["loss"]})


def _dumped(phase: str, name: str, pid: int, **rest: Any) -> str:
    return json.dumps({"ph": phase, "name": name, "pid": pid, "tid": 0, **rest})


def _begin(kind: int, text: str) -> str:
    """What all slices of a kind and a name begin with. `text`: the name."""
    what = _SLICES[Kind(kind)]
    shown = text if kind == Kind.CALL else f"{what} {text.partition(':')[0]}".rstrip()
    return f'{{"ph":"X","name":{json.dumps(shown)},"cat":"{what}"'


def _about_slice(kind: int, step: int, value: int, peers: list[int]) -> str:
    if kind == Kind.SCATTER:
        return f'"step":{step},"bytes":{value}'
    if kind == Kind.GATHER:
        return f'"step":{step},"messages":{value}'
    return f'"for ranks":{peers}' if kind == Kind.WAIT else ""
