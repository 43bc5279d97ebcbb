"""A trace, read from its folder: events of all ranks on one clock, totals, reports, and what is known of the run."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from malt.watch.metrics import lines
from malt.watch.trace import files, layout
from malt.watch.trace.layout import DTYPE, HEADER, MAGIC, NAME_NBYTES, Kind

Records = NDArray[np.void]
_SHOWN = 60
"""The most characters of a value that an error shows."""
_MOST_RANKS, _MOST_RECORDS, _MOST_WRITTEN = 1 << 15, 1 << 28, 1 << 62
_LATEST = 1e9
"""Seconds: a record of a later time was being written when its rank was killed."""
_LONGEST = 1e12
"""Seconds: a clock that says more is none."""
_LARGEST = 1e300
"""A larger number counts as infinity: differences of such numbers are."""
_TEXTS = "survive", "rejoin", "mpi", "malt", "python", "machine", "folder", "began"
_NUMBERS = "ranks", "cores", "status", "seconds"
_LISTS = "program", "hosts"
"""What job.json has, by kind: texts, numbers, lists of texts (malt/launch/traced.py); `environment` has texts by
name. Any of it may be missing."""


class TraceError(ValueError):
    """A folder holds no trace, or one that cannot be read."""


@dataclass
class RankTrace:
    """The events of one rank."""

    rank: int
    records: Records
    """Those of layout.py, by their start, in seconds since the run began."""
    names: list[str]
    totals: NDArray[np.float64]
    """Of shape (ranks, layout.TOTALS), by peer, of all events."""
    dropped: int
    """How many older events the ring has lost."""
    error_s: float
    """How far its times may be off those of the lowest rank."""
    wall: float
    """The time since 1970 at which the run began, by the clock of its host."""
    launched: float
    """When the launcher began, in seconds since the run began: before it, or then, where it is not known."""
    trains: float | None
    """When the rank began to train, in the same seconds. None: it did not, or it is not known."""

    def of(self, *kinds: Kind) -> Records:
        """The records of these kinds."""
        found: Records = self.records[np.isin(self.records["kind"], kinds)]
        return found

    @property
    def since(self) -> float:
        """From when on no event is missing, in seconds."""
        return float(self.records["start"][0]) if self.dropped and len(self.records) else 0.0

    @property
    def until(self) -> float:
        """The end of its last event, in seconds."""
        return float((self.records["start"] + self.records["seconds"]).max()) if len(self.records) else 0.0


@dataclass
class Trace:
    """The trace of one run."""

    folder: Path
    job: dict[str, Any]
    """What job.json says: empty without a launcher."""
    ranks: list[RankTrace]
    size: int
    """How many ranks the job had."""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """The reports: {"rank", "time", numbers...}, all finite; time in seconds since the run began."""

    @property
    def since(self) -> float:
        """From when on no event of any rank is missing, in seconds."""
        return max(rank.since for rank in self.ranks)

    @property
    def until(self) -> float:
        """The end of the last event, in seconds."""
        return max(rank.until for rank in self.ranks)


def read(folder: str | Path) -> Trace:
    """The trace in `folder`. Local. TraceError, in one line: there is none, or it cannot be read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise TraceError(f"{folder}: {'a file, not a folder' if folder.exists() else 'no such folder'}")
    found = files.logs(folder)
    job = _job(folder)
    if not found:
        if job:
            raise TraceError(f"{folder}: no rank has begun a session there: the program ended before malt.init")
        raise TraceError(f"{folder}: no trace there: malt run --trace {folder} ... writes one")
    ranks = [_rank(path) for path in found]
    size = len(ranks[0][0].totals)
    if any(len(rank.totals) != size for rank, _ in ranks):
        raise TraceError(f"{folder}: its files belong to runs with different numbers of ranks")
    began = min(at for _, at in ranks)
    for rank, _ in ranks:
        rank.records["start"] -= began
        rank.wall += began
        rank.launched -= began
        rank.trains = None if rank.trains is None else rank.trains - began
    incarnations = groupby((rank for rank, _ in ranks), lambda rank: rank.rank)
    return Trace(folder, job, [_joined([*of]) for _, of in incarnations], size, _metrics(folder, ranks[0][0].wall))


def _joined(incarnations: Sequence[RankTrace]) -> RankTrace:
    """The events of a rank in all its incarnations: it may have been started again."""
    first, names = incarnations[0], list[str]()
    if len(incarnations) == 1:
        return first
    for one in incarnations:
        one.records["name"] += len(names)
        names += one.names
    records = np.concatenate([one.records for one in incarnations])
    records = records[np.argsort(records["start"], kind="stable")]
    totals = sum((one.totals for one in incarnations[1:]), first.totals)
    dropped, error_s = sum(one.dropped for one in incarnations), max(one.error_s for one in incarnations)
    return replace(first, records=records, names=names, totals=totals, dropped=dropped, error_s=error_s)


def _job(folder: Path) -> dict[str, Any]:
    path = folder / files.JOB
    if not path.exists():
        return {}
    try:
        job = json.loads(path.read_text(encoding="utf-8"))
        version = job["version"]
    except (OSError, ValueError, KeyError, TypeError):
        raise TraceError(f"{path}: not what malt run --trace writes") from None
    if version != files.VERSION:
        raise TraceError(f"{path}: of version {version}, and this malt reads version {files.VERSION}")
    for name, value in job.items():
        if not _is_as_written(name, value):
            raise TraceError(f"{path}: not what malt run --trace writes: {name} is {json.dumps(value)[:_SHOWN]}")
    return dict(job)


def _is_as_written(name: str, value: Any) -> bool:
    """Return whether a value of job.json is of the kind that is written there."""
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _NUMBERS:
        return _is_finite(value)
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(one, str) for one in value)
    return name != "environment" or (isinstance(value, dict) and all(isinstance(one, str) for one in value.values()))


def _is_finite(value: Any) -> bool:
    """Return whether `value` is a number, of those that can be drawn."""
    return isinstance(value, (int, float)) and abs(value) < _LARGEST


def _rank(path: Path) -> tuple[RankTrace, float]:
    """The events of one file, on the clock of the lowest rank; when its session began, by that clock."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    if len(data) < HEADER.size or data[: len(MAGIC)] != MAGIC:
        raise TraceError(f"{path}: not a trace of malt")
    header = HEADER.unpack_from(data)
    _, version, rank, ranks, _, capacity, count, names, _, began, wall, offset_s, error_s, since = header
    if version != layout.VERSION:
        raise TraceError(f"{path}: of version {version}, and this malt reads version {layout.VERSION}")
    is_sound = rank < ranks <= _MOST_RANKS and 0 < capacity <= _MOST_RECORDS and names <= layout.NAMES
    is_sound = is_sound and all(abs(one) < _LONGEST for one in (began, wall, offset_s, error_s))
    is_sound = is_sound and max(count, since) < _MOST_WRITTEN
    if not is_sound or len(data) < layout.records_at(ranks):
        raise TraceError(f"{path}: cut off, or damaged")
    start, nbytes = layout.totals_at(ranks)
    totals = np.frombuffer(data, "<f8", nbytes // 8, start).reshape(ranks, len(layout.TOTALS))
    texts = [data[layout.name_at(n) :][:NAME_NBYTES].rstrip(b"\0").decode(errors="replace") for n in range(names)]
    records = _records(data, layout.records_at(ranks), capacity, range(max(since, count - capacity), count))
    records = layout.expanded(records)
    records = records[records["peer"] < ranks]
    records = records[np.argsort(records["start"], kind="stable")]
    totals = totals + layout.totals(records, ranks)
    records["start"] -= offset_s
    dropped = max(since, count - capacity, 0)
    launched, trains = (_named_time(texts, start, offset_s) for start in (layout.LAUNCHED, layout.TRAINS))
    began -= offset_s
    launched = began if launched is None else launched
    return RankTrace(rank, records, texts, totals, dropped, error_s, wall - began, launched, trains), began


def _named_time(names: Sequence[str], start: str, offset_s: float) -> float | None:
    """The time in the first name that begins with `start`, on the clock of the lowest rank. None: there is none."""
    for name in names:
        if name.startswith(start):
            with contextlib.suppress(ValueError):
                time = float(name.removeprefix(start)) - offset_s
                return time if abs(time) < _LONGEST else None
    return None


def _records(data: bytes, start: int, capacity: int, numbers: range) -> Records:
    """The records of these numbers. Those that are not there, or were being written, are left out."""
    ring = np.frombuffer(data, DTYPE, min(capacity, (len(data) - start) // DTYPE.itemsize), start)
    places = np.arange(max(numbers.start, 0), numbers.stop) % capacity
    found = ring[places[places < len(ring)]]
    with np.errstate(invalid="ignore"):
        times = found["start"] + found["seconds"]
        is_sound = np.isin(found["kind"], list(Kind)) & np.isfinite(times) & (np.abs(times) < _LATEST)
    sound: Records = found[is_sound & (found["seconds"] >= 0)]
    return sound


def _metrics(folder: Path, began: float) -> list[dict[str, Any]]:
    """The reports."""
    found: list[dict[str, Any]] = []
    for line in lines(folder / files.METRICS):
        report = {name: value for name, value in line.items() if _is_finite(value)}
        if "rank" in report and "time" in report:
            found.append({**report, "rank": int(report["rank"]), "time": report["time"] - began})
    return sorted(found, key=lambda report: report["time"])
