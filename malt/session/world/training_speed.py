"""The speed at which a rank trains the rows that it is dealt. Pure."""

from __future__ import annotations


class TrainingSpeed:
    """The speed of one rank, in rows per second, between the calls that deal rows. Local."""

    def __init__(self) -> None:
        self._since, self._rows, self._speed = 0.0, 0.0, 0.0

    def begin(self, now: float, rows: float) -> None:
        """Begin to train `rows` rows at `now`, in seconds."""
        self._since, self._rows = now, rows

    def speed(self, now: float) -> float:
        """Return the speed since `begin`. It is the last one where there were no rows, and 0 before the first."""
        if self._rows and now > self._since:
            self._speed = self._rows / (now - self._since)
        return self._speed
