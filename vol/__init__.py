"""Vector Object Library: vectors that ranks exchange, blocks that they pass on, graphs, and gather functions."""

from vol.blocks import Blocks
from vol.dense import DenseVector
from vol.graphs.builtin import as_graph, graph
from vol.graphs.graph import Graph
from vol.merging.merge import AVG, MEAN, PUSH_SUM, REPLACE, SUM, TRAINED, WEIGHTED, GatherFunction
from vol.sharded import HashedLayout, OwnedVector, ShardedVector, ShardLayout, SparseShardedVector, Temporary, resting
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
