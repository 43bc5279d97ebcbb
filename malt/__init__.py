"""MALT: data-parallel training for existing machine-learning code, peer to peer and one-sided."""

from dstorm import ClosedError, DeadlinePassed, PeerLost
from malt.data import Dataset, Ratings, load_ratings, load_svmlight, open_ratings, open_svmlight
from malt.replica import Replica
from malt.session import World, barrier, finalize, init, rank, size
from malt.shards import shard
from malt.simulation import simulate
from malt.vectors import vector
from vol import AVG, PUSH_SUM, REPLACE, SUM, WEIGHTED, Gathered, Graph, Update, graph

__version__ = "0.1.0"

__all__ = [
    "AVG",
    "PUSH_SUM",
    "REPLACE",
    "SUM",
    "WEIGHTED",
    "ClosedError",
    "Dataset",
    "DeadlinePassed",
    "Gathered",
    "Graph",
    "PeerLost",
    "Ratings",
    "Replica",
    "Update",
    "World",
    "barrier",
    "finalize",
    "graph",
    "init",
    "load_ratings",
    "load_svmlight",
    "open_ratings",
    "open_svmlight",
    "rank",
    "shard",
    "simulate",
    "size",
    "vector",
]
