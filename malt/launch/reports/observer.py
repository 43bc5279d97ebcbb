"""The observer of a job: it draws the view of `malt run --view`, and reports long waits.

It is a thread of the launcher, which asks the ranks for what they show as `malt status` does
(malt/watch/ranks.py).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from dstorm.waits.stopwatch import uptime_s
from malt.launch.reports.long_waits import REPORT_S, LongWaits, longest_s, report
from malt.launch.streams.display import say
from malt.launch.streams.output import Output
from malt.watch.jobs import beginning, title
from malt.watch.picture import Line, picture
from malt.watch.ranks import Shown, ask, look
from malt.watch.stacks import stacks

_VIEW_S = 0.5
"""The interval of two pictures."""
_SELDOM_S = 10.0
"""The interval of the looks at the ranks where there is no view."""
_ANSWER_S = 0.05
"""How long ranks that run have to answer. Later answers are seen at the next look."""


class Observer:
    """The observer of the ranks in `folder`. `output` draws the view, where it has a terminal and `is_viewing`."""

    def __init__(self, folder: Path, ranks: int, program: Sequence[str], output: Output, is_viewing: bool) -> None:
        self._folder, self._ranks, self._program = folder, ranks, beginning(program)
        self._screen = output.screen() if is_viewing else None
        self._began, self._waits = uptime_s(), LongWaits()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="malt observer", daemon=True)

    def start(self) -> None:
        """Start to observe. Call it after the start of mpiexec. Local."""
        self._thread.start()

    def close(self) -> list[bytes]:
        """Stop to observe. Returns the last picture, by rows, which shows how the ranks ended. Local."""
        self._ended.set()
        self._thread.join()
        with contextlib.suppress(Exception):
            return self._drawn(look(self._folder, self._ranks))[0]
        return []

    def _run(self) -> None:
        try:
            self._observe()
        except Exception as error:  # of the view: the job goes on without it
            self._screen = None
            say(f"malt run: the ranks are no longer shown: {error!r}\n")

    def _observe(self) -> None:
        pause_s = _VIEW_S if self._screen is not None else _SELDOM_S
        while not self._ended.wait(pause_s):
            ask(self._folder, range(self._ranks))
            self._ended.wait(_ANSWER_S)
            shown = look(self._folder, self._ranks)
            self._report(shown)
            if self._screen is not None:
                self._screen.show(*self._drawn(shown))
            elif longest_s(shown) < REPORT_S:
                pause_s = min(_SELDOM_S, REPORT_S - longest_s(shown))

    def _report(self, shown: Sequence[Shown]) -> None:
        """Report the waits that are long by now."""
        if due := self._waits.due(shown):
            say(report(shown, stacks(self._folder, due), os.getpid()))

    def _drawn(self, shown: Sequence[Shown]) -> tuple[list[bytes], int]:
        """The picture, by rows, and the number of columns of the terminal."""
        size = self._screen.size() if self._screen is not None else None
        if size is None:  # in the background
            return [], 1
        from malt.launch.reports.rendering import rendered  # needs rich

        above = title(os.getpid(), uptime_s() - self._began, len(shown), self._program)
        found: list[Line] = picture(above, shown, *size)
        return rendered(found, size.columns), size.columns
