"""Graphs whose communities are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
NODES, COMMUNITIES = 500, 5
_WITHIN, _ACROSS = 6, 2
"""How many neighbours each node draws from its community, and from all nodes. As many nodes draw it."""
_MEAN, _EXPONENT = 10, 2.2
"""Of the degrees of a graph with hubs."""


def graph(seed: int, nodes: int = NODES, communities: int = COMMUNITIES) -> tuple[Numbers, Numbers]:
    """The edges, of shape (edges, 2), and the community of each node. The seed alone determines both. Local."""
    generator = np.random.default_rng(seed)
    community = generator.permutation(np.arange(nodes) % communities)
    ordered, sizes = np.argsort(community, kind="stable"), np.bincount(community)
    starts = np.cumsum(sizes) - sizes
    source = np.repeat(np.arange(nodes), _WITHIN)
    place = (generator.random(source.size) * sizes[community[source]]).astype(np.int64)
    within = np.stack([source, ordered[starts[community[source]] + place]], axis=1)
    across = np.stack([np.repeat(np.arange(nodes), _ACROSS), generator.integers(nodes, size=nodes * _ACROSS)], axis=1)
    edges = np.concatenate([within, across])
    return edges[edges[:, 0] != edges[:, 1]], community


def hubs(seed: int, nodes: int, communities: int = COMMUNITIES) -> tuple[Numbers, Numbers]:
    """A graph as `graph` makes, but its degrees follow a power law, and a twentieth of its nodes have loops.

    Some nodes have no edge, or their own loop alone. Local.
    """
    generator = np.random.default_rng(seed)
    community = generator.permutation(np.arange(nodes) % communities)
    weights = np.minimum((1 - generator.random(nodes)) ** (-1 / (_EXPONENT - 1)), nodes / 20)
    source, target = (generator.choice(nodes, _MEAN * nodes // 2, p=weights / weights.sum()) for _ in range(2))
    within = generator.random(len(source)) < _WITHIN / (_WITHIN + _ACROSS)
    for one in range(communities):
        members, rows = np.flatnonzero(community == one), np.flatnonzero(within & (community[source] == one))
        target[rows] = generator.choice(members, len(rows), p=weights[members] / weights[members].sum())
    loops = generator.choice(nodes, nodes // 20, replace=False)
    return np.concatenate([np.stack([source, target], axis=1), np.stack([loops, loops], axis=1)]), community
