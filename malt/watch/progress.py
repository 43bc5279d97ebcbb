"""The progress of a rank: nested loops or epochs, the remaining time, and examples per second. Pure."""

from __future__ import annotations

from typing import NamedTuple

_WINDOW_S = 2.0
"""A rate is that of the last two to four seconds."""


class Loop:
    """One loop of malt.progress, of `total` items, which began at `began`. None: nobody knows how many."""

    def __init__(self, total: int | None, began: float) -> None:
        self.total, self.began = total, began
        self.done = 0
        self.is_over = False


class Progress(NamedTuple):
    """The progress of the work."""

    part: float | None = None
    """0 to 1. None: not known."""
    left_s: float | None = None
    """Seconds that the rest will take. None: not known."""
    done: int = 0
    """The number of items of the outermost loop that are done."""


class Loops:
    """The loops that a rank is in, the outermost first."""

    def __init__(self) -> None:
        self._loops: list[Loop] = []

    def begin(self, loop: Loop) -> None:
        """Enter `loop`. Where an outermost loop is over, its place is taken."""
        self._loops = [one for one in self._loops if not one.is_over]
        self._loops.append(loop)

    def end(self, loop: Loop) -> None:
        """Leave `loop`. The outermost one stays: all of it is done."""
        loop.is_over = True
        self._loops = [one for one in self._loops if one is not loop or one is self._loops[0]]

    def progress(self, now: float) -> Progress | None:
        """Return their progress at `now`. A loop counts for one item of the loop around it. None: there is no loop."""
        loops = list(self._loops)
        if not loops:
            return None
        first = loops[0]
        if first.total is None:
            return Progress(done=first.done)
        part = 0.0
        for loop in reversed(loops):
            part = min(1.0, (loop.done + part) / loop.total) if loop.total else 0.0
        if first.is_over or not first.total:
            return Progress(1.0, 0.0, first.done)
        return Progress(part, (now - first.began) * (1 - part) / part if part else None, first.done)


class Rate:
    """The rate at which a count rises."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None
        self._older = self._newer = self._last = (0.0, 0.0)

    def note(self, now: float, count: float) -> None:
        """Note that the count is `count` at `now`."""
        self._last = now, count
        if self._first is None or count < self._older[1]:  # a count that begins anew
            self._first = self._older = self._newer = self._last
        elif now - self._newer[0] >= _WINDOW_S:
            self._older, self._newer = self._newer, self._last

    def per_s(self) -> float | None:
        """The rise a second, of late. None: it was noted less than twice."""
        seconds = self._last[0] - self._older[0]
        return (self._last[1] - self._older[1]) / seconds if seconds > 0 else None

    def left_s(self, now: float, total: float) -> float | None:
        """Seconds from `now` until the count is `total`, by its mean rise since it was noted first. None: not known."""
        if self._first is None or self._last[1] <= self._first[1]:
            return None
        per_s = (self._last[1] - self._first[1]) / (self._last[0] - self._first[0])
        return max(0.0, (total - self._last[1]) / per_s - (now - self._last[0]))
