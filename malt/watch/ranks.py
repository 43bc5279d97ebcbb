"""The ranks of a job, by the files in its folder: which have started, ended well, failed; and what they show.

malt/launch/job_state.py and malt/launch/departure.py list the files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from dstorm.membership.processes import Process, has_ended, is_stopped, process
from malt.watch.answers import ASK, SHOWN
from malt.watch.record import Record, parsed

_POLL_S = 0.02
"""Also how far the time of a file may lag."""


class Shown(NamedTuple):
    """What is known of one rank."""

    rank: int
    state: str = ""
    """not started, stopped, finished or failed; empty while it runs."""
    record: Record | None = None
    """What it has shown last. None: nothing so far."""
    age_s: float = 0.0
    """How long ago that was. Negative where there is no record."""


def started(folder: Path) -> dict[int, Process]:
    """Return the processes of the ranks that have started. Local."""
    found = {}
    for rank in ranks_with(folder, "started"):
        with contextlib.suppress(OSError):  # removed, as old files of /tmp are
            number, began = (folder / f"started-{rank}").read_text().split()
            found[rank] = process(int(number), int(began))
    return found


def ranks_with(folder: Path, kind: str) -> set[int]:
    """Return the ranks with a file of this kind in `folder`. Local."""
    words = (path.name.rpartition("-")[2] for path in folder.glob(f"{kind}-*"))
    return {int(word) for word in words if word.isdecimal()}


def ask(folder: Path, ranks: Iterable[int]) -> None:
    """Ask ranks of this host for what they show. They answer by themselves, in files. Local."""
    for rank in ranks:
        with contextlib.suppress(OSError):  # no session so far, or it has ended, or it has not read for long
            pipe = os.open(folder / ASK.format(rank), os.O_WRONLY | os.O_NONBLOCK)
            with contextlib.suppress(BlockingIOError):
                os.write(pipe, b"?")
            os.close(pipe)


def look(folder: Path, ranks: int) -> list[Shown]:
    """What is known of all ranks. Local."""
    here, now = started(folder), time.time()
    elsewhere = dict.fromkeys(ranks_with(folder, "elsewhere"))
    finished, over = ranks_with(folder, "finished"), ranks_with(folder, "ended")
    found = []
    for rank in range(ranks):
        record, age_s = _shown(folder, rank, now)
        found.append(Shown(rank, _state(rank, {**elsewhere, **here}, rank in finished, rank in over), record, age_s))
    return found


def look_anew(folder: Path, ranks: int, patience_s: float) -> list[Shown]:
    """What is known of all ranks once those that run have answered, or after `patience_s`. Local."""
    asked_at = time.monotonic()
    ask(folder, range(ranks))
    while True:
        found, waited_s = look(folder, ranks), time.monotonic() - asked_at
        if waited_s > patience_s or all(one.state or 0 <= one.age_s <= waited_s + _POLL_S for one in found):
            return found
        time.sleep(_POLL_S)


def _shown(folder: Path, rank: int, now: float) -> tuple[Record | None, float]:
    """What a rank has shown last, and how long ago."""
    path = folder / SHOWN.format(rank)
    try:
        return parsed(path.read_text(encoding="utf-8")), now - path.stat().st_mtime
    except (OSError, ValueError):
        return None, -1.0


def _state(rank: int, processes: Mapping[int, Process | None], has_finished: bool, is_over: bool) -> str:
    if rank not in processes:
        return "not started"
    if has_finished:
        return "finished"
    own = processes[rank]
    if is_over or (own is not None and has_ended(own)):
        return "failed"
    return "stopped" if own is not None and is_stopped(own) else ""
