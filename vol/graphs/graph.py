"""Communication graphs: which ranks send to which at each step. Pure.

A graph is a table of out-peers by phase and rank. A static graph has one phase, a time-varying graph several. Step t,
from 1, uses phase (t - 1) mod period. Each rank computes the graph on its own, and all must get the same one. So a
graph is a function of its arguments alone, and does not depend on the order in which a rank learns of failures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from dstorm.words import shown
from vol import arguments
from vol.graphs.builders import Phases, Table, circulant, joined, reverse, star, union
from vol.graphs.connectivity import components
from vol.graphs.custom import checked_rank, checked_table
from vol.graphs.mending import extended, mended, renumbered

if TYPE_CHECKING:
    from vol.graphs.consensus import Shares

ZERO_EIGENVALUE = 1e-12  # below is rounding error, which the root over a period would magnify: 1e-17 ** (1/6) = 0.001


@dataclass(frozen=True, repr=False)
class Graph:
    """A communication graph. Immutable. Local.

    Made by `malt.graph`, `Graph.from_dict`, `Graph.from_networkx` and `without`, which check their arguments.
    `phases[p][r]` holds the out-peers of rank r in phase p, ascending. The ranks in `removed` have no edges, and do not
    count in `remaining`, `spectral_gap` and `rounds`. With `smaller(k)`, where ranks come and go, `without` begins with
    the graph of the first k ranks, of which the last one remains. Two graphs are equal if size, edges and removed ranks
    are.
    """

    name: str = field(compare=False)
    """The name that `malt.graph` was called with; "custom" for a graph of your own."""
    size: int
    """The number of ranks, including the removed ones."""
    phases: Phases
    """The out-peers of each rank, by phase and rank."""
    removed: frozenset[int] = frozenset()
    """The ranks without edges."""
    whole: Graph | None = field(default=None, compare=False)  # the graph before ranks were removed
    shares: Shares | None = None  # of weighted averages; None: averages are plain means
    smaller: Callable[[int], Graph] | None = field(default=None, compare=False)  # the graph of only the first k ranks

    @classmethod
    def from_dict(cls, peers: Mapping[Any, Iterable[Any]], size: int) -> Graph:
        """Return a static graph from {rank: [ranks it sends to]}. Local.

        TypeError: something is not an integer. ValueError: there is no such rank, a self-loop, a peer twice, a rank
        without peers, or the graph is not strongly connected.
        """
        size = arguments.whole("size", size, 1)
        return cls("custom", size, (checked_table(peers, size),))

    @classmethod
    def from_networkx(cls, digraph: Any, size: int) -> Graph:
        """Return a static graph from a networkx graph whose nodes are the ranks. Local.

        An undirected edge goes both ways. Raises the errors of `from_dict`.
        """
        peers: dict[Any, list[Any]] = {node: [] for node in digraph.nodes()}
        for sender, receiver in digraph.edges():
            peers[sender].append(receiver)
            if not digraph.is_directed() and sender != receiver:
                peers[receiver].append(sender)
        return cls.from_dict(peers, size)

    def __repr__(self) -> str:
        unusual = {"period": (self.period, 1), "removed": (sorted(self.removed), [])}
        more = "".join(f", {name}={value}" for name, (value, usual) in unusual.items() if value != usual)
        return f"Graph({self.name!r}, size={self.size}, degree={self.degree}{more})"

    def out(self, rank: int, step: int = 1) -> tuple[int, ...]:
        """Return the ranks to which `rank` sends at `step`, ascending. Local. ValueError: no such rank, or step < 1."""
        return self.phases[self._phase(rank, step)][rank]

    def into(self, rank: int, step: int = 1) -> tuple[int, ...]:
        """Return the ranks that send to `rank` at `step`, ascending. Local. ValueError: no such rank, or step < 1."""
        return self._reversed[self._phase(rank, step)][rank]

    def targets(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that `rank` sends to at any step, ascending. Local. ValueError: no such rank."""
        self._phase(rank, 1)
        return joined(table[rank] for table in self.phases)

    def sources(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that send to `rank` at any step, ascending. Local. ValueError: no such rank."""
        self._phase(rank, 1)
        return joined(table[rank] for table in self._reversed)

    def weight(self, rank: int, sender: int, step: int = 1) -> float:
        """Return the weight of the message of `sender` in the average of `rank` at `step`. Local.

        The weights of its own array (`sender` = `rank`) and of those that it receives add up to 1; others have none: 0.
        They are equal, but in the graph "base" at some steps, whose averages are the mean of all ranks after a period.
        Under "bsp" malt.AVG averages with these weights. ValueError: no such rank, or step < 1.
        """
        phase, sender = self._phase(rank, step), checked_rank(sender, self.size)
        terms = (rank, *self._reversed[phase][rank])
        shares = (1,) * len(terms) if self.shares is None else self.shares[phase][rank]
        return shares[terms.index(sender)] / sum(shares) if sender in terms else 0.0

    @property
    def period(self) -> int:
        """The number of steps after which the graph repeats; 1 if it is static. Local."""
        return len(self.phases)

    @property
    def remaining(self) -> tuple[int, ...]:
        """The remaining ranks, ascending. Local."""
        return tuple(sorted(set(range(self.size)) - self.removed))

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The pairs (sender, receiver) of a period, sorted, each once. Local."""
        return tuple((r, p) for r, peers in enumerate(self._targets) for p in peers)

    @cached_property
    def degree(self) -> int:
        """The largest number of peers to which a rank sends at one step. Local."""
        return max(len(peers) for table in self.phases for peers in table)

    def is_strongly_connected(self) -> bool:
        """Return whether a period has a path from every remaining rank to every other. Local."""
        return len(components(self._targets, self.remaining)) == 1

    def is_complete(self) -> bool:
        """Return whether every rank sends to every other at each step. Local."""
        return all(len(peers) == self.size - 1 for table in self.phases for peers in table)

    def spectral_gap(self) -> float:
        """Return 1 - |lambda2| of averaging with in-neighbours over the remaining ranks. Local.

        W[i, j] = weight(i, j): 1 / (indegree(i) + 1) for j = i and for j in into(i), else 0, where it is not given
        otherwise. For a time-varying graph it is the rate per step: 1 - |lambda2(W_period ... W_1)| ** (1 / period).
        The larger the gap, the faster ranks agree; with a gap of 0 they never do. One rank: 1.0.
        """
        from vol.graphs.spectrum import second_by_fft, second_by_matrix

        phases = renumbered(self.phases, self.remaining)
        if len(phases[0]) == 1:
            return 1.0
        is_circulant = self.shares is None and all(table == circulant(len(table), table[0]) for table in phases)
        second = second_by_fft(phases) if is_circulant else second_by_matrix(phases, self.shares)
        return 1.0 if second < ZERO_EIGENVALUE else 1.0 - second ** (1 / self.period)

    def rounds(self) -> int:
        """Return the number of steps, from step 1, after which an update of each remaining rank has reached all. Local.

        For a static graph that is the diameter. For the graph "base", while no rank is removed, it is the period, after
        which averages are the mean. ValueError: the graph is not strongly connected.
        """
        if not self.is_strongly_connected():
            raise ValueError(f"{self!r} is not strongly connected: updates never reach all ranks")
        if self.shares is not None:
            return self.period
        knows = [1 << r for r in range(self.size)]  # by rank: a set of ranks, as the bits of an int
        everything = sum(1 << r for r in self.remaining)
        step = 0
        members = self.remaining
        while {knows[r] for r in members} != {everything}:
            step += 1
            knows = [reduce(or_, (knows[p] for p in self.into(r, step)), own) for r, own in enumerate(knows)]
        return step

    def without(self, ranks: Iterable[int]) -> Graph:
        """Return the graph without the edges of `ranks`, which count as removed. Local.

        The other ranks keep their numbers, and `size` stays. Edges are added if the remaining ranks would not be
        strongly connected: at most one out-peer and one in-peer for each rank. A ring closes over the gap. The lowest
        remaining rank becomes the hub of a star. Averages are plain means from then on. g.without(a).without(b) ==
        g.without(a + b).

        TypeError: `ranks` is not a list of integers. ValueError: there is no such rank, or no rank is left.
        """
        if not isinstance(ranks, Iterable):
            raise TypeError(f"ranks: expected a list of ranks, got {shown(ranks)}")
        removed = self.removed | {checked_rank(r, self.size) for r in ranks}
        if removed == self.removed:
            return self
        if len(removed) == self.size:
            raise ValueError("cannot remove all ranks of a graph")
        # Ranks learn of failures in different orders and must get the same graph, so mending starts from the whole one.
        whole = self.whole or self
        remaining = sorted(set(range(self.size)) - removed)
        phases = whole.phases if whole.smaller is None else extended(whole.smaller(remaining[-1] + 1).phases, self.size)
        phases = (star(self.size, remaining),) if whole.name == "star" else mended(phases, remaining)
        return Graph(self.name, self.size, phases, removed, whole)

    @cached_property
    def fingerprint(self) -> str:
        """The name and a hash of the edges: the same on ranks that have the same graph. Local."""
        text = repr(self.phases) + ("" if self.shares is None else repr(self.shares))
        return f"{self.name} {hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @cached_property
    def _reversed(self) -> Phases:
        """The in-peers by phase and rank."""
        if self.is_complete():  # they are the out-peers: 8 MB of 1,000 ranks, which each rank of a job holds
            return self.phases
        return tuple(map(reverse, self.phases))

    @cached_property
    def _targets(self) -> Table:
        return union(self.phases)

    def _phase(self, rank: int, step: int) -> int:
        checked_rank(rank, self.size)
        return (arguments.whole("step", step, 1) - 1) % len(self.phases)
