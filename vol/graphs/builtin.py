"""The built-in communication graphs, by name; a graph as a user names or describes it. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from dstorm.words import count, shown
from vol import arguments
from vol.graphs.builders import (
    Phases,
    Table,
    chord_offsets,
    circulant,
    complete,
    exponential_offsets,
    halton_offsets,
    hypercube,
    log2_ceil,
    one_peer,
    pairs,
    random_regular,
    star,
    torus,
)  # fmt: skip
from vol.graphs.graph import Graph
from vol.graphs.hierarchy import Hosts, by_host, checked_hosts, hierarchical

AUTO_ALL_RANKS = 4  # "auto" is "all" with up to this number of ranks
ALL_HOSTS = 3  # as many hosts of "hierarchical" are all peers; of 4 each has 2, for two thirds of the bytes
AUTO_SEEDS = 8  # the number of random graphs that "auto" tries
AUTO_DIGITS = 3  # gaps are compared to this number of digits: a triple eigenvalue has an error of 1e-5

BY_HOST = frozenset({"hierarchical", "auto"})
"""The graphs that depend on the hosts of the ranks."""


class _Wanted(NamedTuple):
    """The arguments of a graph, checked."""

    size: int
    degree: int
    seed: int
    hosts: Hosts


def graph(name: str, size: int, degree: int | None = None, seed: int = 0, hosts: Any = None) -> Graph:
    """Return the built-in graph `name` of `size` ranks. It is strongly connected over a period at every size. Local.

    malt.graph says what they are, and which edges they have.

    `degree`: the largest number of peers of a rank at a step, for halton, chord, exponential, random and base; by
    default ceil(log2 N), for base 1. The other graphs accept only the degree that they have. `hosts`: the name of the
    host of each rank, for hierarchical, which needs them, and auto. TypeError, ValueError: an unknown name, or a bad
    size, degree, seed or host.
    """
    size, seed = arguments.whole("size", size, 1), arguments.whole("seed", seed, 0)
    degree = None if degree is None else arguments.whole("degree", degree, min(1, size - 1))
    if not isinstance(name, str):
        raise TypeError(f"name: expected one of {', '.join(NAMES)}, got {shown(name)}")
    if name not in _BUILDERS:
        near = difflib.get_close_matches(name.lower(), NAMES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"no graph is called {name!r}: there are {', '.join(NAMES)}{hint}")
    return _built(name, size, degree, seed, _hosts(name, size, hosts))


def as_graph(spec: Any, size: int, seed: int = 0, hosts: Any = None) -> Graph:
    """Return the graph of `size` ranks that `spec` names or describes. Local.

    `spec`: a name, a Graph, a dict {rank: [peers]} or a networkx graph. `hosts`: the name of the host of each rank, for
    the graphs that depend on them. TypeError: `spec` is none of these. ValueError: it is a Graph of another size.
    Raises also the errors of `graph` and `Graph.from_dict`.
    """
    if isinstance(spec, str):
        return graph(spec, size, seed=seed, hosts=hosts if spec in BY_HOST else None)
    if isinstance(spec, Mapping):
        return Graph.from_dict(spec, size)
    if isinstance(spec, Graph):
        if spec.size != arguments.whole("size", size, 1):
            raise ValueError(f"{spec!r} is for {count(spec.size, 'rank')}, not {size}")
        return spec
    if hasattr(spec, "edges") and hasattr(spec, "is_directed"):
        return Graph.from_networkx(spec, size)
    raise TypeError(f"graph: expected a name, a Graph, a dict or a networkx graph, got {type(spec).__name__}")


def _hosts(name: str, size: int, hosts: Any) -> Hosts:
    """Return the hosts, checked; none where the graph does not depend on them."""
    if hosts is None:
        if name == "hierarchical":
            raise ValueError(
                f"graph {name!r} needs hosts=, a host name by rank: there is no session of {count(size, 'rank')}"
            )
        return ()
    if name not in BY_HOST:
        raise ValueError(f"hosts is for the graphs {' and '.join(sorted(BY_HOST))}, not for {name!r}")
    return checked_hosts(hosts, size)


@lru_cache(maxsize=128)
def _built(name: str, size: int, degree: int | None, seed: int, hosts: Hosts) -> Graph:
    is_free = name in _DEGREES
    most = _DEGREES.get(name, log2_ceil)(size) if degree is None or not is_free else min(degree, size - 1)
    wanted = _Wanted(size, most, seed, hosts)
    shares = None
    if name == "base":
        from vol.graphs import consensus

        shares = consensus.shares(size, most)
    built = Graph(name, size, _BUILDERS[name](wanted), shares=shares)
    if degree is not None and not is_free and degree != built.degree:
        raise ValueError(
            f"graph {name!r} of {count(size, 'rank')} has degree {built.degree}: degree={degree} is not possible"
        )
    return built


def _base(wanted: _Wanted) -> Phases:
    from vol.graphs import consensus

    return consensus.phases(wanted.size, wanted.degree)


def _auto(wanted: _Wanted) -> Phases:
    if len(set(wanted.hosts)) > 1:
        return _hierarchical(wanted)
    return (_densest(wanted.size, wanted.seed, AUTO_ALL_RANKS),)


def _hierarchical(wanted: _Wanted) -> Phases:
    return (hierarchical(wanted.hosts, _densest(len(by_host(wanted.hosts)), wanted.seed, ALL_HOSTS)),)


def _densest(size: int, seed: int, most_all: int) -> Table:
    """Return the candidate of the largest spectral gap; "all" with up to `most_all`.

    All candidates are regular in and out, so that averaging with in-neighbours keeps the mean over the ranks.
    """
    if size <= most_all:
        return complete(size)
    degree = log2_ceil(size)
    circulants = (chord_offsets, exponential_offsets, halton_offsets)
    tables: list[Table] = [circulant(size, of(size)[:degree]) for of in circulants]
    tables += [random_regular(size, degree, seed + k) for k in range(AUTO_SEEDS)]
    # Rounded, and the first of equals: ranks with different BLAS libraries must choose the same graph.
    return max(tables, key=lambda table: round(Graph("auto", size, (table,)).spectral_gap(), AUTO_DIGITS))


_BUILDERS: dict[str, Callable[[_Wanted], Phases]] = {
    "all": lambda wanted: (complete(wanted.size),),
    "ring": lambda wanted: (circulant(wanted.size, [1] if wanted.size > 1 else []),),
    "halton": lambda wanted: (circulant(wanted.size, halton_offsets(wanted.size)[: wanted.degree]),),
    "chord": lambda wanted: (circulant(wanted.size, chord_offsets(wanted.size)[: wanted.degree]),),
    "exponential": lambda wanted: (circulant(wanted.size, exponential_offsets(wanted.size)[: wanted.degree]),),
    "one-peer": lambda wanted: one_peer(wanted.size),
    "pairs": lambda wanted: pairs(wanted.size, wanted.seed),
    "base": _base,
    "hypercube": lambda wanted: (hypercube(wanted.size),),
    "torus": lambda wanted: (torus(wanted.size),),
    "random": lambda wanted: (random_regular(wanted.size, wanted.degree, wanted.seed),),
    "star": lambda wanted: (star(wanted.size, range(wanted.size)),),
    "hierarchical": _hierarchical,
    "auto": _auto,
}
_DEGREES: dict[str, Callable[[int], int]] = {
    **dict.fromkeys(("halton", "chord", "exponential", "random"), log2_ceil),
    "base": lambda size: 1,
}
"""The graphs whose degree is free, and what it is by default."""
NAMES = tuple(_BUILDERS)
