"""The time at which a rank began to train, and for how long it has waited in collective calls since. Pure."""

from __future__ import annotations

from dstorm.trace import Trace


class Training:
    """The base of transports, which note it of their rank. Its members are those of `Transport`."""

    trace: Trace | None = None
    trains_since: float | None = None
    waited_s: float = 0.0

    def begin_training(self, now: float) -> None:
        """Note that this rank begins to train, unless it has: with its first step or exchange. Local."""
        if self.trains_since is not None:
            return
        self.trains_since, self.waited_s = now, 0.0
        if self.trace is not None:
            self.trace.begun(now)

    def compute(self, seconds: float) -> None:
        """Nothing: work takes its time. Local."""
