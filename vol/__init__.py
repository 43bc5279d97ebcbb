"""Vector Object Library: vectors that ranks exchange, blocks that they pass on, graphs, and gather functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dstorm.lazy_imports import at_first_use

if TYPE_CHECKING:
    from vol.blocks import Blocks
    from vol.dense import DenseVector
    from vol.graphs.builtin import as_graph, graph
    from vol.graphs.graph import Graph
    from vol.merging.merge import AVG, MEAN, PUSH_SUM, REPLACE, SUM, TRAINED, WEIGHTED, GatherFunction
    from vol.sharded import (
        HashedLayout,
        OwnedVector,
        ShardedVector,
        ShardLayout,
        SparseShardedVector,
        Temporary,
        resting,
    )
    from vol.sparse.vector import SparseVector
    from vol.update import Gathered, Update
    from vol.vector import Vector

__all__ = [
    "AVG",
    "MEAN",
    "PUSH_SUM",
    "REPLACE",
    "SUM",
    "TRAINED",
    "WEIGHTED",
    "Blocks",
    "DenseVector",
    "GatherFunction",
    "Gathered",
    "Graph",
    "HashedLayout",
    "OwnedVector",
    "ShardLayout",
    "ShardedVector",
    "SparseShardedVector",
    "SparseVector",
    "Temporary",
    "Update",
    "Vector",
    "as_graph",
    "graph",
    "resting",
]

_LATER = {
    "Blocks": "vol.blocks",
    "DenseVector": "vol.dense",
    **dict.fromkeys(("as_graph", "graph"), "vol.graphs.builtin"),
    "Graph": "vol.graphs.graph",
    **dict.fromkeys(
        ("AVG", "MEAN", "PUSH_SUM", "REPLACE", "SUM", "TRAINED", "WEIGHTED", "GatherFunction"), "vol.merging.merge"
    ),
    **dict.fromkeys(
        ("HashedLayout", "OwnedVector", "ShardedVector", "ShardLayout", "SparseShardedVector", "Temporary", "resting"),
        "vol.sharded",
    ),
    "SparseVector": "vol.sparse.vector",
    **dict.fromkeys(("Gathered", "Update"), "vol.update"),
    "Vector": "vol.vector",
}
"""Names that are imported at their first use, and the modules that define them."""

__getattr__, __dir__ = at_first_use(__name__, _LATER)
