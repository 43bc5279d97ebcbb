"""MALT: data-parallel training for existing machine-learning code, peer to peer and one-sided."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# First: it reports a file of the user's that hides one of the packages below.
import malt.runner.shadowing  # noqa: F401

# isort: split
from dstorm.lazy_imports import at_first_use

if TYPE_CHECKING:
    from dstorm import ClosedError, DeadlinePassed, Network, PeerLost, Statistics
    from malt import files, kernels, models, optim
    from malt import jax as jax  # not in __all__, as torch
    from malt import torch as torch  # not in __all__: from malt import * works without it
    from malt.data import Dataset, Ratings, load_ratings, load_svmlight, open_ratings, open_svmlight
    from malt.data.mapreduce import map_reduce
    from malt.data.shards import shard
    from malt.launch.machine.memory import free_memory
    from malt.session.checkpoints.checkpoint import Checkpoint
    from malt.session.collectives import allgather, allreduce, barrier, broadcast, lowest, mean, reduce_rows, together
    from malt.session.epochs import epochs, scale
    from malt.session.lost_ranks import LostRank, lost_ranks
    from malt.session.replica.exchanges import Exchanges
    from malt.session.replica.replica import Replica
    from malt.session.running.running import run
    from malt.session.seeds import seed
    from malt.session.session import alive, finalize, heartbeat, hosts, init, on_death, on_join, rank, rejoined, size
    from malt.session.simulation import clock, compute, simulate
    from malt.session.vectors.blocks import blocks
    from malt.session.vectors.graphs import graph
    from malt.session.vectors.sharded import reduce_scatter, sharded
    from malt.session.vectors.vector import vector
    from malt.session.world.world import World
    from malt.watch.reports import on_report, progress, report
    from vol import AVG, MEAN, PUSH_SUM, REPLACE, SUM, TRAINED, WEIGHTED, Gathered, Graph, Update

__version__ = "0.1.0"

__all__ = [
    "AVG",
    "MEAN",
    "PUSH_SUM",
    "REPLACE",
    "SUM",
    "TRAINED",
    "WEIGHTED",
    "Checkpoint",
    "ClosedError",
    "Dataset",
    "DeadlinePassed",
    "Exchanges",
    "Gathered",
    "Graph",
    "LostRank",
    "Network",
    "PeerLost",
    "Ratings",
    "Replica",
    "Statistics",
    "Update",
    "World",
    "alive",
    "allgather",
    "allreduce",
    "barrier",
    "blocks",
    "broadcast",
    "clock",
    "compute",
    "epochs",
    "files",
    "finalize",
    "free_memory",
    "graph",
    "heartbeat",
    "hosts",
    "init",
    "kernels",
    "load_ratings",
    "load_svmlight",
    "lost_ranks",
    "lowest",
    "map_reduce",
    "mean",
    "models",
    "on_death",
    "on_join",
    "on_report",
    "open_ratings",
    "open_svmlight",
    "optim",
    "progress",
    "rank",
    "reduce_rows",
    "reduce_scatter",
    "rejoined",
    "report",
    "run",
    "scale",
    "seed",
    "shard",
    "sharded",
    "simulate",
    "size",
    "together",
    "vector",
]

_LATER = {
    "Checkpoint": "malt.session.checkpoints.checkpoint",
    "Exchanges": "malt.session.replica.exchanges",
    "Replica": "malt.session.replica.replica",
    "World": "malt.session.world.world",
    "blocks": "malt.session.vectors.blocks",
    "free_memory": "malt.launch.machine.memory",
    "graph": "malt.session.vectors.graphs",
    "map_reduce": "malt.data.mapreduce",
    "run": "malt.session.running.running",
    "seed": "malt.session.seeds",
    "shard": "malt.data.shards",
    "vector": "malt.session.vectors.vector",
    **dict.fromkeys(("ClosedError", "DeadlinePassed", "Network", "PeerLost", "Statistics"), "dstorm"),
    **dict.fromkeys(
        ("Dataset", "Ratings", "load_ratings", "load_svmlight", "open_ratings", "open_svmlight"), "malt.data"
    ),
    **dict.fromkeys(("LostRank", "lost_ranks"), "malt.session.lost_ranks"),
    **dict.fromkeys(
        ("alive", "finalize", "heartbeat", "hosts", "init", "on_death", "on_join", "rank", "rejoined", "size"),
        "malt.session.session",
    ),
    **dict.fromkeys(
        ("allgather", "allreduce", "barrier", "broadcast", "lowest", "mean", "reduce_rows", "together"),
        "malt.session.collectives",
    ),
    **dict.fromkeys(("clock", "compute", "simulate"), "malt.session.simulation"),
    **dict.fromkeys(("epochs", "scale"), "malt.session.epochs"),
    **dict.fromkeys(("on_report", "progress", "report"), "malt.watch.reports"),
    **dict.fromkeys(("reduce_scatter", "sharded"), "malt.session.vectors.sharded"),
    **dict.fromkeys(
        ("AVG", "MEAN", "PUSH_SUM", "REPLACE", "SUM", "TRAINED", "WEIGHTED", "Gathered", "Graph", "Update"), "vol"
    ),
}
"""Names that are imported at their first use, and the modules that define them. The launcher uses none."""

_PACKAGES = ("data", "files", "jax", "kernels", "models", "optim", "sklearn", "torch")
"""The public subpackages, which are imported at their first use. Those of an extra are not in `__all__`."""


_named, _ = at_first_use(__name__, _LATER)


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"malt.{name}")
    return _named(name)


def __dir__() -> list[str]:
    return sorted({*__all__, *_PACKAGES})
