"""Which ranks have failed, and which of them have come back: when, and why; what the program wants to hear of it."""

from __future__ import annotations

from collections.abc import Callable


class Failures:
    """The ranks of a session that have failed, as far as this rank knows. The constructor is Local."""

    def __init__(self) -> None:
        self.lost: dict[int, float] = {}
        """When each of them failed: the time at which that was found, or at which the rank was first seen to be
        stopped, in seconds since 1970."""
        self.reasons: dict[int, str] = {}
        """Why."""
        self.back: dict[int, float] = {}
        """When those that have come back did so last."""
        self.on_death: list[Callable[[int], None]] = []
        """The functions that malt.on_death was given."""
        self.on_join: list[Callable[[int], None]] = []
        """The functions that malt.on_join was given."""
