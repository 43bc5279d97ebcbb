"""The number of examples each model was trained on since it was last merged here. Pure."""

from __future__ import annotations

from collections.abc import Iterable


class Trained:
    """The counts of examples that came with the models that this rank merged last, its own included. Local."""

    def __init__(self) -> None:
        self._counts: dict[int, float] = {}

    def since(self, rank: int, count: float) -> float:
        """Return how many of the `count` examples of `rank`, in all, are new here: the weight of its model."""
        return max(0.0, count - self._counts.get(rank, 0.0))

    def merged(self, counts: Iterable[tuple[int, float]]) -> None:
        """Note the (rank, count) of each model that was merged now."""
        self._counts.update(counts)
