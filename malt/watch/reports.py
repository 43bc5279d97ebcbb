"""`malt.report`, `malt.progress`, `malt.on_report`: what the program of a rank shows of itself.

A report changes a few numbers in memory. They leave the process only when somebody asks for them (answers.py), or where
the program, or `malt run --metrics`, has asked for each report.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import TypeVar

from dstorm.membership import children
from dstorm.words import shown
from malt.runner import reporting
from malt.watch import answers
from malt.watch.metrics import METRICS, TRACE, sink
from malt.watch.progress import Loop, Loops, Progress, Rate
from malt.watch.record import Counters, Record
from malt.watch.trace.files import METRICS as METRICS_OF_TRACE
from vol import arguments

_Item = TypeVar("_Item")
_MOST = sys.float_info.max
"""A greater integer counts as infinity."""
Callback = Callable[[Mapping[str, float]], object]


class Reports:
    """The numbers that the program of this process has reported."""

    def __init__(self) -> None:
        self.numbers: dict[str, float] = {}
        self.loops, self.epochs, self.examples = Loops(), Rate(), Rate()

    def note(self, numbers: Mapping[str, float], now: float) -> None:
        """Note the numbers of one report."""
        self.numbers = {**self.numbers, **numbers}
        if "epoch" in numbers:
            self.epochs.note(now, numbers["epoch"])
        if "examples" in numbers:
            self.examples.note(now, numbers["examples"])

    def record(self, counters: Counters, now: float) -> Record:
        """Return the record of this rank at `now`."""
        part, left_s, done = self.loops.progress(now) or self._of_epochs(now)
        return Record(
            **vars(counters), numbers=self.numbers, progress=part, left_s=left_s, done=done,
            examples_per_s=self.examples.per_s(),
        )  # fmt: skip

    def _of_epochs(self, now: float) -> Progress:
        epoch, epochs = self.numbers.get("epoch"), self.numbers.get("epochs")
        if epoch is None or not epochs or not math.isfinite(epoch + epochs):
            return Progress()
        return Progress(min(1.0, epoch / epochs), self.epochs.left_s(now, epochs), int(epoch))


_reports = Reports()
_sinks: list[Callback] = []
"""Those of `malt run --metrics` and `--trace`."""
_callbacks: list[Callback] = []
_has_begun = _is_child = False


def report(**numbers: float) -> None:
    """Show `numbers` as the current ones of this rank, for `malt status` and `malt run --metrics`. Local.

    Any name is allowed. Some have a meaning: `loss`; `epoch` and `epochs`, the total, which determine the progress
    without malt.progress; `examples`, how many this rank has trained on, whose slope is its speed; `step`, the position
    of the numbers in TensorBoard. `rank` and `time` get an additional underscore in a file of --metrics, whose lines
    have such fields themselves. A number remains until another report names it. A report takes some microseconds;
    without a launcher nothing is shown. The functions of malt.on_report are called before it returns. In a child
    process of a rank it does nothing, because its numbers would be taken for those of the rank.

    TypeError: a value is not a number. Nothing of the report is shown.
    """
    checked = {
        name: one if type(one) in (int, float) and abs(one) <= _MOST else arguments.real(f"malt.report: {name}", one)
        for name, one in numbers.items()
    }
    if not _has_begun:
        _begin()
    if _is_child:
        return
    _reports.note(checked, time.monotonic())
    for callback in (*_sinks, *_callbacks):
        callback(checked)


def progress(iterable: Iterable[_Item], total: int | None = None) -> Iterator[_Item]:
    """Yield the items of `iterable`, and show how many are done as the progress of this rank. Local.

    `total`: the number of items, by default len(iterable) if there is one. A loop within another one counts as one item
    of that loop.

    TypeError: `iterable` is none, or `total` is not an integer. ValueError: `total` is negative.
    """
    items = iter(iterable)
    if total is None:
        total = len(iterable) if isinstance(iterable, Sized) else None
    else:
        total = arguments.whole("malt.progress: total", total, 0)
    return _shown(items, total)


def on_report(callback: Callback) -> None:
    """Call callback(numbers) at each malt.report of this process from now on, with a dict of its numbers. Local.

    For example, `malt.on_report(wandb.log)`. The callback runs in the thread of the report, which raises its errors.

    TypeError: `callback` is not callable.
    """
    if not callable(callback):
        raise TypeError(f"malt.on_report takes a function of a dict of numbers, got {shown(callback)}")
    _callbacks.append(callback)


def record(counters: Counters) -> Record:
    """Return the current record of this rank. Local."""
    return _reports.record(counters, time.monotonic())


def _shown(items: Iterator[_Item], total: int | None) -> Iterator[_Item]:
    if not _has_begun:
        _begin()
    loop = Loop(total, time.monotonic())
    _reports.loops.begin(loop)
    try:
        for item in items:
            yield item
            loop.done += 1
    finally:
        _reports.loops.end(loop)


def _begin() -> None:
    """Begin to answer, in a program that has no session so far, and to write metrics, where they are asked for."""
    global _has_begun, _is_child
    _is_child = bool(children.refusal())
    if _is_child:
        _has_begun = True
        return
    answers.start()
    if path := os.environ.get(METRICS):
        try:
            _sinks.append(sink(path))
        except OSError as error:  # the training goes on
            print(f"malt: rank {reporting.rank()} writes no reports: {path}: {error.strerror}", file=sys.stderr)
    _has_begun = True
    if folder := os.environ.get(TRACE):
        with contextlib.suppress(OSError):  # this rank is not traced, and has said so (malt/session/world/tracing.py)
            _sinks.append(sink(os.path.join(folder, METRICS_OF_TRACE)))


def _after_fork() -> None:
    global _has_begun
    _has_begun = False
    _sinks.clear()


os.register_at_fork(after_in_child=_after_fork)
