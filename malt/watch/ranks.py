"""The ranks of a job, by what is in its folder: which have started, ended well, failed; and what they show."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from dstorm.membership.processes import Process, is_stopped
from malt.runner import roster
from malt.runner.departure import NOTIFIED
from malt.runner.events import ASK, SHOWN, History, Kind, Stream
from malt.watch.processes import ended, processes
from malt.watch.record import Record, parsed

_POLL_S = 0.02
"""Also how far the time of a file may lag."""
_BY_SIGNAL = 128
"""A greater status is that of a process that a signal has killed."""


class Shown(NamedTuple):
    """The state of one rank, as far as is known."""

    rank: int
    state: str = ""
    """not started, stopped, finished, departed, interrupted or failed; empty while it runs."""
    record: Record | None = None
    """What it has shown last. None: nothing so far."""
    age_s: float = 0.0
    """How long ago that was. Negative where there is no record."""
    why: str = ""
    """Why it has failed, as far as it has reported that."""
    failed_s: float | None = None
    """How long ago it failed. None: it has not, or nobody knows."""


def ask(folder: Path, ranks: Iterable[int]) -> None:
    """Ask ranks of this host for what they show. They answer by themselves, in files. Local."""
    for rank in ranks:
        with contextlib.suppress(OSError):  # no session so far, or it has ended, or it has not read for long
            pipe = os.open(folder / ASK.format(rank), os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                os.write(pipe, b"?")
            os.close(pipe)


def present(folder: Path, ranks: int) -> int:
    """Return how many ranks a job of at most `ranks` has, or has had, where they come and go. Local."""
    found = roster.read(folder)
    if found is None:
        return ranks
    return max(found.size, *(1 + rank for rank in Stream(folder).read().ranks(Kind.STARTED)), 1)


def look(folder: Path, ranks: int) -> list[Shown]:
    """Return the known states of all ranks. Local."""
    reports, is_notified = Stream(folder), (folder / NOTIFIED).exists()
    over = ended(reports) | reports.ranks(Kind.ENDED)
    found, here, now = [], processes(reports), time.time()
    for rank in range(present(folder, ranks)):
        state = _state(reports, rank, here.get(rank), rank in over, is_notified)
        why, failed_s = _failure(reports, rank) if state == "failed" else ("", None)
        found.append(Shown(rank, state, *_shown(folder, rank, now), why, failed_s))
    return found


def look_anew(folder: Path, ranks: int, patience_s: float) -> list[Shown]:
    """Return the states of all ranks once those that run have answered, or after `patience_s`. Local."""
    asked_at = time.monotonic()
    ask(folder, range(ranks))
    while True:
        found, waited_s = look(folder, ranks), time.monotonic() - asked_at
        if waited_s > patience_s or all(one.state or 0 <= one.age_s <= waited_s + _POLL_S for one in found):
            return found
        time.sleep(_POLL_S)


def _shown(folder: Path, rank: int, now: float) -> tuple[Record | None, float]:
    """Return the latest record of a rank, and its age."""
    path = folder / SHOWN.format(rank)
    try:
        return parsed(path.read_text(encoding="utf-8")), now - path.stat().st_mtime
    except (OSError, ValueError):
        return None, -1.0


def _state(reports: History, rank: int, own: Process | None, is_over: bool, is_notified: bool) -> str:
    """The state of a rank, as in `Shown`. `own`: its process. `is_over`: whether that has ended."""
    if own is None and reports.get(Kind.ELSEWHERE, rank) is None:
        return "not started"
    if reports.get(Kind.FINISHED, rank):
        return "finished"
    if not is_over:
        return "stopped" if own is not None and is_stopped(own) else ""
    left = reports.get(Kind.LEFT, rank)
    if left and left.text == "0":
        return "departed"
    return "interrupted" if is_notified and not (left or reports.get(Kind.TRACEBACK, rank)) else "failed"


def _failure(reports: History, rank: int) -> tuple[str, float | None]:
    """Return why a rank has failed, and how long ago: as it has reported that, or as its starter has seen it."""
    trace, how = reports.get(Kind.TRACEBACK, rank), reports.get(Kind.LEFT, rank) or reports.get(Kind.ENDED, rank)
    status = int(how.text) if how and how.text.isdecimal() else None
    why = "killed" if status is None or status > _BY_SIGNAL else f"status {status}"
    first = how or trace
    since_s = (time.monotonic_ns() - first.at) / 1e9 if first else None
    return trace.text.rstrip().rpartition("\n")[2] if trace else why, since_s
