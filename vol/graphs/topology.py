"""The neighbours of one rank along a graph, from which failed ranks are removed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dstorm.view import View
from dstorm.waits import interruption
from dstorm.words import shown
from vol import arguments
from vol.graphs.graph import Graph


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of one rank for one version of the membership view."""

    version: int
    """The version of the membership view."""
    graph: Graph
    """The graph of the live ranks. A failed rank has no edges."""
    outs: tuple[tuple[int, ...], ...]
    """The out-neighbours by phase, ascending."""
    ins: tuple[tuple[int, ...], ...]
    """The in-neighbours by phase, ascending."""
    targets: tuple[int, ...]
    """The out-neighbours of any step, ascending."""
    sources: tuple[int, ...]
    """The in-neighbours of any step, ascending."""
    weights: tuple[Mapping[int, float] | None, ...] = (None,)
    """The weights of an average by phase: this rank's and those of its in-neighbours, by rank. None: all are equal."""

    def out(self, step: int) -> tuple[int, ...]:
        """Return the out-neighbours at `step`, ascending. Steps count from 1. Local."""
        return self.outs[(step - 1) % len(self.outs)]

    def into(self, step: int) -> tuple[int, ...]:
        """Return the in-neighbours at `step`, ascending. Steps count from 1. Local."""
        return self.ins[(step - 1) % len(self.ins)]

    def weights_at(self, step: int) -> Mapping[int, float] | None:
        """Return `weights` at `step`. Steps count from 1. Local."""
        return self.weights[(step - 1) % len(self.weights)]


class Topology:
    """The neighbours of `rank` at each step, while ranks fail and join. Local.

    All ranks follow `graph` without the failed ranks (Graph.without). Ranks with the same membership view have the same
    graph, whatever the order of the failures. A call that sees a new version of the view computes the neighbours again.
    It then calls `mended(before)` with the former neighbours. `absent()`: live ranks that have no part in it yet.
    """

    def __init__(
        self, graph: Graph, view: View, rank: int, mended: Callable[[Neighbours], object] = lambda before: None,
        absent: Callable[[], frozenset[int]] = frozenset,
    ) -> None:  # fmt: skip
        self.graph = graph
        """The graph without failures."""
        self._view, self._rank, self._mended, self._absent = view, rank, mended, absent
        self.done = 0
        """The steps of an earlier job, after which step 1 follows."""
        self.seen = self._made()
        """The neighbours at the last call that followed the view."""

    @property
    def may_grow(self) -> bool:
        """True if a rank that is not a neighbour may become one."""
        return self._view.can_change

    @property
    def is_present(self) -> bool:
        """True if `seen` is of the present view."""
        return self.seen.version == self._view.version

    @property
    def now(self) -> Neighbours:
        """The neighbours for the present view. Calls `mended` if the view has changed."""
        self.follow()
        return self.seen

    def follow(self) -> None:
        """Follow the present view, as `now` does; one comparison where it has not changed."""
        if self.seen.version != self._view.version:
            self.renew()

    @interruption.whole
    def renew(self) -> None:
        """Compute the neighbours again, whatever has changed. Calls `mended`."""
        before, self.seen = self.seen, self._made()
        self._mended(before)

    def begin_after(self, steps: int) -> None:
        """Have step 1 be the one that follows `steps` along the graph, as where an earlier job went that far. Local."""
        self.done = steps
        if self.graph.period > 1:
            self.renew()

    def chosen(self, name: str, to: int | Iterable[int], peers: Sequence[int], step: int) -> list[int]:
        """Return the ranks `to` among `peers`, the out-neighbours of the vector `name` at `step`, ascending.

        TypeError: `to` is no rank, nor a list of ranks. PeerLost: one has failed. ValueError: one is no out-neighbour.
        """
        wanted = [to] if isinstance(to, (int, np.integer)) else to
        try:
            chosen = sorted({arguments.integer(peer) for peer in wanted})
        except TypeError:
            raise TypeError(f"{name}: to must be a rank or a list of ranks, got {shown(to)}") from None
        self._view.check_alive(chosen, f"{name} cannot scatter to it")
        strangers = [peer for peer in chosen if peer not in peers]
        if strangers:
            raise ValueError(
                f"{name}: rank {self._rank} cannot scatter to {strangers}: its out-neighbours at step {step} are "
                f"{list(peers)}"
            )
        return chosen

    def peek(self) -> Neighbours:
        """Return the neighbours for the present view, and change nothing. Any thread may call it."""
        seen = self.seen
        return seen if seen.version == self._view.version else self._made()

    def _made(self) -> Neighbours:
        version = self._view.version  # read first, so that the failed ranks are at least as new as the version
        graph = self.graph.without(self._view.failed | self._absent())
        steps = range(1 + self.done, graph.period + 1 + self.done)
        outs, ins = (tuple(way(self._rank, step) for step in steps) for way in (graph.out, graph.into))
        weights = (None,) if graph.shares is None else tuple(self._weights(graph, step) for step in steps)
        return Neighbours(version, graph, outs, ins, graph.targets(self._rank), graph.sources(self._rank), weights)

    def _weights(self, graph: Graph, step: int) -> Mapping[int, float] | None:
        terms = (self._rank, *graph.into(self._rank, step))
        weights = {peer: graph.weight(self._rank, peer, step) for peer in terms}
        return weights if len(set(weights.values())) > 1 else None
