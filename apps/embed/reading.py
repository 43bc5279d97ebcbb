"""Reads what apps.embed trains on: the graph, or one made of the seed, and a model to start from. All is local."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping

import numpy as np

from apps.embed import graph, planted
from apps.embed.graph import Graph
from apps.harness import Array, load_model


def read(options: Namespace) -> tuple[Graph, Mapping[str, Array] | None]:
    """The graph, and the vectors to start from, if there are any. ValueError, OSError: a file cannot be read."""
    found = _graph(options)
    return found, _model(options, found)


def _graph(options: Namespace) -> Graph:
    if options.edges is not None:
        return graph.read(options.edges, options.labels)
    if options.labels is not None:
        raise ValueError("--labels needs EDGES: the communities of the generated graph are known")
    return graph.graph(np.arange(planted.NODES), *planted.graph(options.seed))


def _model(options: Namespace, found: Graph) -> Mapping[str, Array] | None:
    """The vectors to start from. ValueError, OSError: the file cannot be read, or is of other nodes or sizes."""
    if options.model is None:
        return None
    model = load_model(options.model, "apps.embed")
    shape = (len(found.names), options.dim)
    if not np.array_equal(model.get("nodes", []), found.names):
        raise ValueError(f"{options.model}: not a model of apps.embed of the nodes of this graph")
    vectors = [model.get(name, np.empty(0)) for name in ("vectors", "contexts")]
    if any(one.shape != shape or not np.isfinite(one).all() for one in vectors):
        raise ValueError(f"{options.model}: its vectors must be finite, with {options.dim} numbers (--dim)")
    return model
