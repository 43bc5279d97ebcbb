"""Communication graphs: which ranks send to which at each step. Pure.

A graph is a table of out-peers by phase and rank. A static graph has one phase, a time-varying graph several. Step t,
from 1, uses phase (t - 1) mod period. Each rank computes the graph on its own, and all must get the same one. So a
graph is a function of its arguments alone, and does not depend on the order in which a rank learns of failures.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from operator import or_
from typing import Any

from vol import arguments
from vol.graphs.builders import (
    Circulant,
    Hypercube,
    Peers,
    Phases,
    Rule,
    Table,
    Torus,
    chord_offsets,
    exponential_offsets,
    halton_offsets,
    joined,
    log2_ceil,
    one_peer,
    pairs,
    random_regular,
    reverse,
    star,
    union,
)  # fmt: skip
from vol.graphs.mending import components, mended, renumbered
from vol.graphs.spectrum import second_by_fft, second_by_matrix, uniform

AUTO_ALL_RANKS = 4  # "auto" is "all" with up to this number of ranks
AUTO_SEEDS = 8  # the number of random graphs that "auto" tries
AUTO_DIGITS = 3  # gaps are compared to this number of digits: a triple eigenvalue has an error of 1e-5
ZERO_EIGENVALUE = 1e-12  # below is rounding error, which the root over a period would magnify: 1e-17 ** (1/6) = 0.001


@dataclass(frozen=True, repr=False)
class Graph:
    """A communication graph. Immutable. Local.

    Made by `graph`, `as_graph`, `Graph.from_dict`, `Graph.from_networkx` and `without`, which check their arguments.
    `phases[p][r]` holds the out-peers of rank r in phase p, ascending. The ranks in `removed` have no edges, and do not
    count in `remaining`, `spectral_gap` and `rounds`. Two graphs are equal if size, edges and removed ranks are.
    """

    name: str = field(compare=False)
    size: int
    phases: Phases
    removed: frozenset[int] = frozenset()
    whole: Graph | None = field(default=None, compare=False)  # the graph before ranks were removed

    @classmethod
    def from_dict(cls, peers: Mapping[Any, Iterable[Any]], size: int) -> Graph:
        """Return a static graph from {rank: [ranks it sends to]}. Local.

        TypeError: something is not a whole number. ValueError: there is no such rank, a self-loop, a peer twice, a rank
        without peers, or the graph is not strongly connected.
        """
        size = _integer("size", size, least=1)
        return cls("custom", size, (_checked_table(peers, size),))

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
        return self._into(self._phase(rank, step), rank)

    def targets(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that `rank` sends to at any step, ascending. Local. ValueError: no such rank."""
        self._phase(rank, 1)
        return joined(table[rank] for table in self.phases)

    def sources(self, rank: int) -> tuple[int, ...]:
        """Return the ranks that send to `rank` at any step, ascending. Local. ValueError: no such rank."""
        self._phase(rank, 1)
        return joined(self._into(phase, rank) for phase in range(self.period))

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
        """Whether a period has a path from every remaining rank to every other. Local."""
        return len(components(self._targets, self.remaining)) == 1

    def is_complete(self) -> bool:
        """Whether every rank sends to every other at each step. Local."""
        return all(len(peers) == self.size - 1 for table in self.phases for peers in table)

    def spectral_gap(self) -> float:
        """Return 1 - |lambda2| of uniform averaging with in-neighbours over the remaining ranks. Local.

        W[i, j] = 1 / (indegree(i) + 1) for j = i and for j in into(i), else 0. For a time-varying graph it is the rate
        per step: 1 - |lambda2(W_period ... W_1)| ** (1 / period). The larger the gap, the faster ranks agree; with
        a gap of 0 they never do. One rank: 1.0.
        """
        phases = renumbered(self.phases, self.remaining)
        if len(phases[0]) == 1:
            return 1.0
        is_circulant = all(table == Circulant(len(table), table[0]) for table in phases)
        second = second_by_fft(phases) if is_circulant else second_by_matrix(phases)
        return 1.0 if second < ZERO_EIGENVALUE else 1.0 - second ** (1 / self.period)

    def rounds(self) -> int:
        """Return the number of steps, from step 1, after which an update of each remaining rank has reached all. Local.

        For a static graph that is the diameter. ValueError: the graph is not strongly connected.
        """
        if not self.is_strongly_connected():
            raise ValueError(f"{self!r} is not strongly connected: news never reaches all")
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
        remaining rank becomes the hub of a star. g.without(a).without(b) == g.without(a + b).

        TypeError: `ranks` is not a list of whole numbers. ValueError: there is no such rank, or no rank is left.
        """
        if not isinstance(ranks, Iterable):
            raise TypeError(f"ranks: expected a list of ranks, got {ranks!r}")
        removed = self.removed | {_rank(r, self.size) for r in ranks}
        if removed == self.removed:
            return self
        if len(removed) == self.size:
            raise ValueError(f"cannot remove all {self.size} ranks of a graph")
        # Ranks learn of failures in different orders and must get the same graph, so mending starts from the whole one.
        whole = self.whole or self
        remaining = sorted(set(range(self.size)) - removed)
        phases = (star(self.size, remaining),) if whole.name == "star" else mended(whole.phases, remaining)
        return Graph(self.name, self.size, phases, removed, whole)

    @cached_property
    def fingerprint(self) -> str:
        """The name and a hash of the edges: the same on ranks that have the same graph. Local."""
        return f"{self.name} {hashlib.sha256(repr(self.phases).encode()).hexdigest()[:12]}"

    def _into(self, phase: int, rank: int) -> Peers:
        table = self.phases[phase]
        return table.into(rank) if isinstance(table, Rule) else self._reversed[phase][rank]

    @cached_property
    def _reversed(self) -> Phases:
        """The in-peers by phase and rank; empty for a phase that is a rule."""
        return tuple(() if isinstance(table, Rule) else reverse(table) for table in self.phases)

    @cached_property
    def _targets(self) -> Table:
        return union(self.phases)

    def _phase(self, rank: int, step: int) -> int:
        rank, step = _integer("rank", rank), _integer("step", step)
        if not (0 <= rank < self.size and step >= 1):
            raise ValueError(f"rank {rank} at step {step}: ranks are 0 to {self.size - 1}, steps count from 1")
        return (step - 1) % len(self.phases)


def graph(name: str, size: int, degree: int | None = None, seed: int = 0) -> Graph:
    """Return the built-in graph `name` of `size` ranks. It is strongly connected over a period at every size. Local.

    all          every rank to every other
    ring         r to r + 1
    halton       offsets 1 + floor(N v), v = 0, 1/2, 1/4, 3/4, 1/8 ... (van der Corput, base 2; MALT-2's)
    chord        offsets N/2, N/4, ..., 1
    exponential  offsets 1, 2, 4, ... below N
    one-peer     one of the exponential graph's offsets at a time, in turn: period ceil(log2 N)
    pairs        one random peer at a time, both ways, from `seed`: every other edge of a random ring, then the others;
                 period 2 ceil(log2 N), less where pairs would come again; N odd: one rank in turn has no peer
    hypercube    r to r with one bit flipped, if there is such a rank; both ways
    torus        four neighbours in a grid that wraps, as square as the factors of N allow; N prime: a ring both ways
    random       regular in and out, from `seed`; contains a random ring through all ranks
    star         every rank to rank 0 and back
    auto         "all" up to 4 ranks; else the graph of the largest spectral gap among chord, exponential, halton and
                 some random ones, each with at most ceil(log2 N) peers

    `degree`: the largest number of peers of a rank, for halton, chord, exponential and random; by default
    ceil(log2 N). The other graphs accept only the degree that they have. TypeError, ValueError: an unknown name, or a
    bad size, degree or seed.
    """
    size, seed = _integer("size", size, least=1), _integer("seed", seed, least=0)
    degree = None if degree is None else _integer("degree", degree, least=min(1, size - 1))
    if not isinstance(name, str):
        raise TypeError(f"name: expected one of {', '.join(NAMES)}, got {name!r}")
    if name not in _BUILDERS:
        near = difflib.get_close_matches(name.lower(), NAMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no graph is called {name!r}: there are {', '.join(NAMES)}{hint}")
    return _built(name, size, degree, seed)


def as_graph(spec: Any, size: int, seed: int = 0) -> Graph:
    """Return the graph of `size` ranks that `spec` names or describes. Local.

    `spec`: a name, a Graph, a dict {rank: [peers]} or a networkx graph. TypeError: it is none of these. ValueError: it
    is a Graph of another size. Raises also the errors of `graph` and `Graph.from_dict`.
    """
    if isinstance(spec, str):
        return graph(spec, size, seed=seed)
    if isinstance(spec, Mapping):
        return Graph.from_dict(spec, size)
    if isinstance(spec, Graph):
        if spec.size != _integer("size", size, least=1):
            raise ValueError(f"{spec!r} is for {spec.size} ranks, not {size}")
        return spec
    if hasattr(spec, "edges") and hasattr(spec, "is_directed"):
        return Graph.from_networkx(spec, size)
    raise TypeError(f"graph: expected a name, a Graph, a dict or a networkx graph, got {type(spec).__name__}")


@lru_cache(maxsize=128)
def _built(name: str, size: int, degree: int | None, seed: int) -> Graph:
    wanted = log2_ceil(size) if degree is None or name not in _DEGREE_IS_FREE else min(degree, size - 1)
    built = Graph(name, size, _BUILDERS[name](size, wanted, seed))
    if degree is not None and name not in _DEGREE_IS_FREE and degree != built.degree:
        raise ValueError(f"graph {name!r} of {size} ranks has degree {built.degree}: degree={degree} cannot be had")
    return built


def _auto(size: int, seed: int) -> Phases:
    """Return the candidate of the largest spectral gap.

    All candidates are regular in and out, so that averaging with in-neighbours keeps the mean over the ranks.
    """
    if size <= AUTO_ALL_RANKS:
        return (Circulant(size, range(1, size)),)
    degree = log2_ceil(size)
    circulants = (chord_offsets, exponential_offsets, halton_offsets)
    tables: list[Table] = [Circulant(size, of(size)[:degree]) for of in circulants]
    tables += [random_regular(size, degree, seed + k) for k in range(AUTO_SEEDS)]
    # Rounded, and the first of equals: ranks with different BLAS libraries must choose the same graph.
    best = max(tables, key=lambda table: round(Graph("auto", size, (table,)).spectral_gap(), AUTO_DIGITS))
    return (best,)


_BUILDERS: dict[str, Callable[[int, int, int], Phases]] = {
    "all": lambda size, degree, seed: (Circulant(size, range(1, size)),),
    "ring": lambda size, degree, seed: (Circulant(size, [1] if size > 1 else []),),
    "halton": lambda size, degree, seed: (Circulant(size, halton_offsets(size)[:degree]),),
    "chord": lambda size, degree, seed: (Circulant(size, chord_offsets(size)[:degree]),),
    "exponential": lambda size, degree, seed: (Circulant(size, exponential_offsets(size)[:degree]),),
    "one-peer": lambda size, degree, seed: one_peer(size),
    "pairs": lambda size, degree, seed: pairs(size, seed),
    "hypercube": lambda size, degree, seed: (Hypercube(size),),
    "torus": lambda size, degree, seed: (Torus(size),),
    "random": lambda size, degree, seed: (random_regular(size, degree, seed),),
    "star": lambda size, degree, seed: (star(size, range(size)),),
    "auto": lambda size, degree, seed: _auto(size, seed),
}
_DEGREE_IS_FREE = frozenset({"halton", "chord", "exponential", "random"})
NAMES = tuple(_BUILDERS)


def _checked_table(peers: Mapping[Any, Iterable[Any]], size: int) -> Table:
    by_rank = {_rank(rank, size): _checked_peers(rank, listed, size) for rank, listed in peers.items()}
    if size > 1:
        for rank in range(size):
            if not by_rank.get(rank):
                raise ValueError(f"rank {rank} has no out-peers: every one of the {size} ranks must send to some other")
    from scipy.sparse import csgraph

    table = tuple(by_rank.get(rank, ()) for rank in range(size))
    for way, between in ((table, "from rank 0 to rank {}"), (reverse(table), "from rank {} to rank 0")):
        reached = csgraph.breadth_first_order(uniform(way), 0, return_predecessors=False)
        if len(reached) < size:
            missed = min(set(range(size)) - set(reached.tolist()))
            raise ValueError(f"the graph is not strongly connected: there is no way {between.format(missed)}")
    return table


def _checked_peers(rank: Any, listed: Iterable[Any], size: int) -> tuple[int, ...]:
    if not isinstance(listed, Iterable):
        raise TypeError(f"peers of rank {rank}: expected a list of ranks, got {listed!r}")
    checked = [_rank(peer, size) for peer in listed]
    if rank in checked:
        raise ValueError(f"rank {rank} sends to itself: self-loops are not allowed")
    twice = [peer for k, peer in enumerate(checked) if peer in checked[:k]]
    if twice:
        raise ValueError(f"rank {rank} lists peer {twice[0]} twice")
    return tuple(sorted(checked))


def _rank(value: Any, size: int) -> int:
    rank = _integer("rank", value)
    if not 0 <= rank < size:
        raise ValueError(f"rank {rank} is out of range: with {size} ranks they are 0 to {size - 1}")
    return rank


def _integer(what: str, value: Any, least: int | None = None) -> int:
    try:
        number = arguments.integer(value)
    except TypeError:
        raise TypeError(f"{what}: expected an int, got {value!r}") from None
    if least is not None and number < least:
        raise ValueError(f"{what} must be at least {least}, got {number}")
    return number
