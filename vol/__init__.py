"""Vector Object Library: vectors that ranks share, the graphs they travel along, and how updates merge."""

from vol.dense import DenseVector
from vol.graphs.graph import Graph, as_graph, graph
from vol.merge import AVG, PUSH_SUM, REPLACE, SUM, WEIGHTED, GatherFunction
from vol.sparse.vector import SentAs, SparseVector
from vol.update import Update
from vol.vector import Gathered, Vector

__all__ = [
    "AVG",
    "PUSH_SUM",
    "REPLACE",
    "SUM",
    "WEIGHTED",
    "DenseVector",
    "GatherFunction",
    "Gathered",
    "Graph",
    "SentAs",
    "SparseVector",
    "Update",
    "Vector",
    "as_graph",
    "graph",
]
