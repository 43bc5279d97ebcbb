"""Vector Object Library: vectors that ranks share, the graphs they travel along, and how updates merge."""

from vol.dense import DenseVector, Gathered
from vol.graph import Graph, as_graph, graph
from vol.merge import AVG, PUSH_SUM, REPLACE, SUM, WEIGHTED, GatherFunction
from vol.update import Update

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
    "Update",
    "as_graph",
    "graph",
]
