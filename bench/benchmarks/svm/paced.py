"""Training at a pace: ranks on fewer cores are as fast as on cores of their own."""

from __future__ import annotations

import time


class Paced:
    """Training that takes `pace_s` for an example: the rank sleeps for what is left of it.

    A sleep lasts some tenths of a millisecond too long. The next one is shorter for it.
    """

    def __init__(self, pace_s: float) -> None:
        self._pace_s, self._late_s, self._begun = pace_s, 0.0, 0.0

    def begin(self) -> None:
        self._begun = time.perf_counter() - self._late_s

    def end(self, count: int) -> None:
        over = self._begun + self._pace_s * count
        time.sleep(max(0.0, over - time.perf_counter()))
        self._late_s = time.perf_counter() - over
