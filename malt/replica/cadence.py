"""How often a loop looks at the clock that must not feel it. Pure."""

from __future__ import annotations

_SHORT_S = 1e-3
"""Between two looks, where steps are shorter."""
_MOST = 64
"""Steps between two looks: a loop that becomes slow all at once is found out after so many."""


class Cadence:
    """A loop's pace: how many steps may pass between two looks at the clock. `now`: when it begins."""

    def __init__(self, now: float) -> None:
        self._looked_at = now
        self._steps = 1

    def steps(self, now: float) -> int:
        """Steps from this look, at `now`, to the next one, at least 1."""
        passed_s, self._looked_at = now - self._looked_at, now
        if passed_s < _SHORT_S:
            self._steps = min(2 * self._steps, _MOST)
        else:
            self._steps = max(1, int(self._steps * _SHORT_S / passed_s))
        return self._steps
