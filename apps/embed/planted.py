"""A graph whose communities are known."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]
NODES, COMMUNITIES = 500, 5
_WITHIN, _ACROSS = 6, 2
"""How many neighbours each node draws from its community, and from all nodes. As many nodes draw it."""


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
