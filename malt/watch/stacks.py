"""The Python stacks of the ranks of a running job.

A rank writes them itself when it gets a signal (malt/runner/program.py). The handler is faulthandler's, in C: it needs
neither the interpreter nor the main thread, so it works while the rank waits in a lock, or in C code.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

from dstorm.membership.processes import Process, handles, has_ended, is_stopped, send
from malt.runner.events import Stream
from malt.runner.program import STACKS, STACKS_SIGNAL
from malt.watch import answers
from malt.watch.processes import processes

PATIENCE_S = 1.0
"""How long ranks may take to write their stacks."""
_POLL_S, _QUIET_POLLS = 0.02, 4
"""The interval of the looks at the files, and after how many without a change a file is complete."""


def stacks(folder: Path, ranks: Iterable[int]) -> dict[int, str]:
    """The stacks of all threads of each of `ranks`, by rank, or a line that says why there are none. Local."""
    here = processes(Stream(folder).read())
    found = {rank: _refusal(here.get(rank)) for rank in ranks}
    asked = {rank: _nbytes(folder, rank) for rank, why in found.items() if not why}
    for rank in asked:
        send(here[rank], STACKS_SIGNAL)
    end, quiet, before = time.monotonic() + PATIENCE_S, 0, asked
    while quiet < _QUIET_POLLS and time.monotonic() < end:
        time.sleep(_POLL_S)
        now = {rank: _nbytes(folder, rank) for rank in asked}
        is_complete = now == before and all(now[rank] > asked[rank] for rank in asked)
        quiet, before = quiet + 1 if is_complete else 0, now
    for rank, start in asked.items():
        found[rank] = _text(folder, rank, start) or f"no answer within {PATIENCE_S:g} s"
    return found


def printed(found: dict[int, str]) -> str:
    """The stacks, or why there are none, rank by rank, as text."""
    return "\n".join(f"rank {rank}:\n{text.rstrip()}\n" for rank, text in found.items())


def _refusal(process: Process | None) -> str:
    """Return why a process cannot write its stacks, or "" where it can. An unhandled signal would end it."""
    if process is None:
        return "it has not started, or is on another host"
    if has_ended(process):
        return "its process has ended"
    if is_stopped(process):
        return "its process is stopped"
    if handles(process, STACKS_SIGNAL):
        return ""
    return "it no longer runs a Python program of malt run"


def _nbytes(folder: Path, rank: int) -> int:
    with contextlib.suppress(OSError):
        return (folder / STACKS.format(rank)).stat().st_size
    return 0


def _text(folder: Path, rank: int, start: int) -> str:
    with contextlib.suppress(OSError), open(folder / STACKS.format(rank), "rb") as file:
        file.seek(start)
        threads = file.read().decode(errors="replace").strip().split("\n\n")
        return "\n\n".join(thread for thread in threads if answers.__file__ not in thread)  # it waits to be asked
    return ""
