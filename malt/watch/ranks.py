"""The ranks of a job, by the files in its folder: which have started, ended well, failed; and what they show.

malt/launch/reports/job_state.py and malt/launch/processes/departure.py list the files.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable
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
    """not started, stopped, finished, departed, interrupted or failed; empty while it runs."""
    record: Record | None = None
    """What it has shown last. None: nothing so far."""
    age_s: float = 0.0
    """How long ago that was. Negative where there is no record."""
    why: str = ""
    """Why it has failed, as far as it has reported that."""
    failed_s: float | None = None
    """How long ago it failed. None: it has not, or nobody knows."""


def started(folder: Path) -> dict[int, Process]:
    """Return the processes of the ranks that have started. Local."""
    return _processes(folder, ranks_with(folder, "started"))


def _processes(folder: Path, ranks: Iterable[int]) -> dict[int, Process]:
    found = {}
    for rank in ranks:
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
    names, now = _names(folder), time.time()
    states = _states(folder, names)
    found = []
    for rank in range(ranks):
        state = states.get(rank, "not started")
        record, age_s = _shown(folder, rank, now) if f"shown-{rank}" in names else (None, -1.0)
        why, failed_s = _failure(folder, rank, now) if state == "failed" else ("", None)
        found.append(Shown(rank, state, record, age_s, why, failed_s))
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


def _names(folder: Path) -> frozenset[str]:
    """The names of the files in `folder`."""
    with contextlib.suppress(OSError):  # the job has just ended
        return frozenset(os.listdir(folder))
    return frozenset()


def _states(folder: Path, names: Collection[str]) -> dict[int, str]:
    """The state of each rank that has started, as in `Shown`."""
    kinds = defaultdict(set)
    for kind, _, word in (name.rpartition("-") for name in names):
        if word.isdecimal():
            kinds[kind].add(int(word))
    here = _processes(folder, kinds["started"])
    states = dict.fromkeys(kinds["elsewhere"] | here.keys(), "")
    for rank in states:
        own = here.get(rank)
        if rank in kinds["finished"]:
            states[rank] = "finished"
        elif rank in kinds["ended"] or (own is not None and has_ended(own)):
            states[rank] = _end(folder, rank, names)
        elif own is not None and is_stopped(own):
            states[rank] = "stopped"
    return states


def _end(folder: Path, rank: int, names: Collection[str]) -> str:
    """How a rank has ended whose report of it was not there before."""
    if (folder / f"finished-{rank}").exists():
        return "finished"
    if _text(folder / f"left-{rank}") == "0":
        return "departed"
    has_reported = f"left-{rank}" in names or f"rank-{rank}.txt" in names
    return "interrupted" if "notified" in names and not has_reported else "failed"


def _failure(folder: Path, rank: int, now: float) -> tuple[str, float | None]:
    """Why a rank has failed, and how long ago: as it has reported that, or as the launcher has seen it."""
    traceback, status = _text(folder / f"rank-{rank}.txt"), _text(folder / f"left-{rank}")
    why = traceback.splitlines()[-1] if traceback else f"status {status}" if status else "killed"
    for name in (f"failed-{rank}", f"left-{rank}", f"rank-{rank}.txt"):
        with contextlib.suppress(OSError):
            return why, now - (folder / name).stat().st_mtime
    return why, None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").strip()
    return ""
