"""`malt run --metrics`: each report of a rank as a line of JSON, or in the event files of TensorBoard.

Under `malt run --compare` also what its Replicas have counted, in a file of its own.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dstorm.waits.stopwatch import uptime_s
from malt.runner import reporting

METRICS = "MALT_METRICS"
"""The variable that names the file of JSON lines, or the folder of TensorBoard."""
COUNTS = "MALT_COUNTS"
"""The variable that names the file of JSON lines for what Replicas have counted: malt run --compare sets it."""
TRACE = "MALT_TRACE"
"""The variable that names the folder of the trace (malt/watch/trace/files.py)."""
SUFFIX = ".jsonl"
_OWN = "rank", "time"
"""The fields of a line that are no numbers of the report."""
WRITERS = ("tensorboard", "tensorboardX")
"""The packages that write event files. One of them is enough."""
NEEDS = (
    "event files need tensorboard or tensorboardX (pip install tensorboardX); a file that ends in .jsonl needs neither"
)
"""Where there is none of them."""

Sink = Callable[[Mapping[str, float]], object]


def sink(path: str) -> Sink:
    """A function that writes the numbers of a report to `path`, on behalf of this rank. Local.

    `path` ends in .jsonl: a line {"rank", "time", "numbers"...} is added to that file, which all ranks share. Its time
    is in seconds since 1970, by the clock as it was set when the rank began. Else it is a folder, in which each rank
    has a run of TensorBoard, rank-<r>. Where a report cannot be written, as on a full disk, the function says so in one
    line, and writes no more.

    OSError: it cannot be written, or neither tensorboard nor tensorboardX is installed.
    """
    rank = int(reporting.rank()) if reporting.rank() != "?" else 0
    write = _lines(path, rank) if path.endswith(SUFFIX) else _events(os.path.join(path, f"rank-{rank}"))
    has_failed = False

    def attempt(numbers: Mapping[str, float]) -> None:
        nonlocal has_failed
        if not has_failed:
            try:
                write(numbers)
            except OSError as error:  # the training goes on
                has_failed = True
                print(f"malt: rank {rank} no longer writes reports: {path}: {error.strerror}", file=sys.stderr)

    return attempt


def note_counts(counts: int, seconds: float) -> None:
    """Write down what a Replica of this rank has counted, and in which time, where COUNTS names a file. Local."""
    if path := os.environ.get(COUNTS):
        _counts(path)({"counts": counts, "seconds": seconds})


_counts = functools.cache(sink)
"""Opened once. It is for files that malt run has made: a program may close many Replicas."""


def _lines(path: str, rank: int) -> Sink:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    started = time.time() - uptime_s()  # a clock that is set would change how far reports lie apart

    def write(numbers: Mapping[str, float]) -> None:
        text = line(rank, started + uptime_s(), numbers)
        os.write(file, text.encode())  # one write: lines of several ranks are not mixed

    return write


def line(rank: int, now: float, numbers: Mapping[str, float]) -> str:
    """A report as a line of JSON. A number that has the name of one of its own fields gets an underscore more. Pure."""
    named = {name + "_" * (name.rstrip("_") in _OWN): one for name, one in numbers.items()}
    finite = {name: one if math.isfinite(one) else None for name, one in named.items()}  # JSON has no NaN
    return json.dumps({"rank": rank, "time": round(now, 3), **finite}) + "\n"


def lines(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file of JSON lines, as dicts. Local. What is no line was cut off as its rank was killed.

    None where there is no such file: nothing was reported.
    """
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        for text in file:
            with contextlib.suppress(ValueError):
                if isinstance(found := json.loads(text), dict):
                    yield found


def _events(folder: str) -> Sink:
    writer, count = _writer(folder), 0

    def write(numbers: Mapping[str, float]) -> None:
        nonlocal count
        count += 1
        step = numbers.get("step", count)
        step = int(step) if math.isfinite(step) else count
        for name, number in numbers.items():
            if name != "step":
                writer.add_scalar(name, number, step)
        writer.flush()

    return write


def _writer(folder: str) -> Any:
    with contextlib.suppress(ImportError):
        from tensorboard.summary import Writer

        return Writer(folder)
    with contextlib.suppress(ImportError):
        from tensorboardX import SummaryWriter

        return SummaryWriter(folder)
    raise OSError(errno.ENOPKG, NEEDS)
