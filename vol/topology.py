"""The neighbours of one rank: along a graph, as the membership view mends it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dstorm.membership.view import View
from vol.graphs.graph import Graph


@dataclass(frozen=True)
class Neighbours:
    """Those of one version of the view."""

    version: int
    graph: Graph
    """Of the living; a failed rank has no edges."""
    outs: tuple[tuple[int, ...], ...]
    """The out-neighbours by phase, ascending."""
    ins: tuple[tuple[int, ...], ...]
    """The in-neighbours by phase, ascending."""
    targets: tuple[int, ...]
    """The out-neighbours of any step, ascending."""
    sources: tuple[int, ...]
    """The in-neighbours of any step, ascending."""

    def into(self, step: int) -> tuple[int, ...]:
        """The in-neighbours at `step`, from 1, ascending."""
        return self.ins[(step - 1) % len(self.ins)]


class Topology:
    """Who the neighbours of `rank` are, at each step, while ranks fail and join.

    All ranks follow `graph` without those who have failed (Graph.without): the same graph wherever the view is the
    same, whatever came first. It is made anew where the view has another version, by whoever asks next; then
    `mended(before)` is called with the neighbours until then.
    """

    def __init__(
        self, graph: Graph, view: View, rank: int, mended: Callable[[Neighbours], object] = lambda before: None
    ) -> None:  # fmt: skip
        self.graph = graph
        """As it is while nobody has failed."""
        self._view, self._rank, self._mended = view, rank, mended
        self.seen = self._made()
        """The neighbours as they were asked for last."""

    @property
    def may_grow(self) -> bool:
        """Whether a rank that is no neighbour may become one."""
        return self._view.can_change

    @property
    def now(self) -> Neighbours:
        """The neighbours as the view is now."""
        if self.seen.version != self._view.version:
            before, self.seen = self.seen, self._made()
            self._mended(before)
        return self.seen

    def follow(self) -> None:
        """Take note of how the view is now."""
        self.seen = self.now

    def outs(self, step: int) -> tuple[int, ...]:
        """The out-neighbours at `step`, from 1, ascending."""
        outs = self.now.outs
        return outs[(step - 1) % len(outs)]

    def ins(self, step: int) -> tuple[int, ...]:
        """The in-neighbours at `step`, from 1, ascending."""
        ins = self.now.ins
        return ins[(step - 1) % len(ins)]

    def peek(self) -> Neighbours:
        """As `now`, without taking note of it: for any thread."""
        seen = self.seen
        return seen if seen.version == self._view.version else self._made()

    def _made(self) -> Neighbours:
        version = self._view.version  # first: what follows is at least as new
        graph = self.graph.without(self._view.failed)
        steps = range(1, graph.period + 1)
        outs, ins = (tuple(way(self._rank, step) for step in steps) for way in (graph.out, graph.into))
        return Neighbours(version, graph, outs, ins, graph.targets(self._rank), graph.sources(self._rank))
