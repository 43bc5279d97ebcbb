"""News for a rank since its last gather: scatters, and the examples of models. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping


class Scattered:
    """The steps up to which the scatters of in-neighbours were counted: of those that MEAN counts. Local."""

    def __init__(self) -> None:
        self._until: dict[int, int] = {}

    def counted(
        self, merged: Iterable[tuple[int, int]], reached: Mapping[int, int],
        into: Callable[[int], Collection[int]], period: int, only: int | None = None,
    ) -> set[int]:  # fmt: skip
        """Count the scatters to this rank that were not counted yet; return the ranks that made them.

        `merged`: the (sender, step) of each message that is merged. `reached`: by in-neighbour the step up to which it
        has scattered, and all its messages have been taken. `into(step)`: the in-neighbours at a step, the same again
        after `period` steps. `only`: the step whose scatters count, under lockstep.
        """
        ranks = set()
        for sender, step in merged:
            ranks.add(sender)
            self._until[sender] = max(step, self._until.get(sender, 0))
        for peer, last in reached.items():
            before, until = (self._until.get(peer, 0), last) if only is None else (only - 1, min(only, last))
            if any(peer in into(step) for step in range(max(before, until - period, 0) + 1, until + 1)):
                ranks.add(peer)
            self._until[peer] = max(until, before)
        return ranks


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
