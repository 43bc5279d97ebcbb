"""Vectors of the nodes of a graph: random walks, and skip-gram with negative sampling (DeepWalk, node2vec).

    python -m apps.embed [EDGES] ...                    alone
    malt run -n 4 -m apps.embed [EDGES] ...             on four ranks

Each rank holds some of the dimensions of all vectors, and visits all pairs of nodes: an epoch is a walk from each node.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

import malt
from apps import harness
from apps.embed import graph, kernels
from apps.embed.graph import Graph
from apps.embed.vectors import Vectors
from apps.harness import TRAFFIC, Array, Column, CommonShares, Measures, Need, Parser, Report, Start

_COPIES = 4
"""What a rank holds of the vectors, and the same by node; of each two kinds."""
_STARTS = 10
"""Of k-means, where clusters are compared with communities."""


class Trainer(harness.Parts):
    """The part of all vectors that one rank holds, and its training."""

    def __init__(self, problem: Problem, start: Start) -> None:
        options, self._problem, self._options = problem.options, problem, problem.options
        negatives, most = options.negatives + 1, options.exchange_every * problem.pairs
        self._pairs = np.empty((most, negatives + 1), np.int32)
        self._walk = np.empty(options.length, np.int32)
        self._vectors = Vectors(options.dim, problem.nodes, (most, negatives), start.state)
        if not start.state and problem.model is not None:
            self._vectors.put(problem.model["vectors"], problem.model["contexts"])
        elif not start.state:
            self._vectors.start(options.seed)
        self.vectors = [self._vectors.traffic]
        self._loss_of_epochs = [float(start.state["loss"])] if start.state else []
        self._resumed, self._first = len(self._loss_of_epochs), start.epoch

    def rebuild(self) -> str:
        """Share the dimensions among the live ranks. Those that failed begin as at the start."""
        anew, dim = self._vectors.rebuild(self._options.seed), self._options.dim
        return f"{anew:,} of {dim:,} dimensions" if anew else ""

    def train(self, epoch: int, order: Any) -> int:
        options, problem, links = self._options, self._problem, self._problem.graph.links
        generator = np.random.default_rng([options.seed, 0, epoch])
        nodes = generator.permutation(problem.nodes).astype(np.int32)
        loss = 0.0
        for first in range(0, len(nodes), options.exchange_every):
            starts = nodes[first : first + options.exchange_every]
            pairs = self._pairs[: len(starts) * problem.pairs]
            window = min(options.window, options.length)  # else sums of it are beyond 64 bits
            kernels.draw(links, starts, self._walk, window, options.p, options.q, generator, pairs)
            done = (epoch - 1 + first / len(nodes)) / options.epochs
            loss += self._vectors.learn(pairs, options.step * max(1 - done, 1e-4))
        if not np.isfinite(loss):
            raise harness.BadInput("the loss is not finite: take a smaller --step")
        self._loss_of_epochs[self._resumed + epoch - 1 - self._first :] = [loss / problem.rows]
        self.loss = self._loss_of_epochs[-1]
        self._vectors.give()
        return problem.rows if malt.lowest() else 0

    def model(self) -> Mapping[str, Array]:
        """The hash of each part, as no rank has all."""
        return self._vectors.compared()

    def measures_of_all(self) -> list[Measures]:
        """The mean loss of the pairs of each epoch; of the final vectors how well their clusters are communities."""
        own, _ = self._vectors.whole()
        known, last = self._problem.graph.communities, self._loss_of_epochs[-1] if self._loss_of_epochs else None
        found = agreement(own, known) if known is not None and malt.lowest() else None
        epochs: list[Measures] = [{"loss": loss} for loss in self._loss_of_epochs[self._resumed :]]
        return [*epochs, {"loss": last, "nmi": harness.of_lowest(found)}]

    def state(self) -> Mapping[str, Any]:
        return {"own": self._vectors.own, "near": self._vectors.near, "loss": self._loss_of_epochs[-1]}

    def saved(self) -> Mapping[str, Any]:
        """`vectors`, of which row i is that of nodes[i], and `contexts`, the other vectors."""
        vectors, contexts = self._vectors.whole()
        return {"nodes": self._problem.graph.names, "vectors": vectors, "contexts": contexts}

    def warning(self, report: Report) -> str:
        is_worse = (report.final["loss"] or 0) > (self._options.negatives + 1) * math.log(2)
        return "the vectors are worse than zeros: take a smaller --step" if is_worse else ""


class Problem(harness.Problem):
    """The graph, and the pairs of a walk."""

    trains = Trainer
    same = ("dim", "length", "window", "negatives", "p", "q", "step", "seed")

    def __init__(self, options: Namespace, found: Graph, model: Mapping[str, Array] | None) -> None:
        self.options, self.graph, self.model = options, found, model
        self.nodes = len(found.names)
        self.pairs = kernels.pair_count(options.length, options.window)
        self.rows = self.nodes * self.pairs
        options.exchange_every = min(options.exchange_every, self.nodes)

    def memory(self) -> Need:
        options, held = self.options, -(-self.options.dim // malt.size())
        nbytes = 4 * (_COPIES * held * self.nodes + 2 * options.exchange_every * self.pairs * (options.negatives + 1))
        return Need(nbytes, f"{self.nodes:,} nodes make a large model of --dim {options.dim}",
                    "take a smaller --dim, a smaller --exchange-every or more ranks")  # fmt: skip

    def facts(self) -> dict[str, Any]:
        links = self.graph.links
        return {"nodes": self.nodes, "CRC-32 of edges": harness.fingerprint(links.starts, links.neighbours)}

    def compile(self) -> None:
        kernels.compile_kernels()

    def shares(self) -> CommonShares:
        return CommonShares(self.options.dim, "dimensions")

    def introduction(self, trainer: Trainer) -> str:
        options, edges = self.options, len(self.graph.links.neighbours) // 2
        return (
            f"{self.nodes:,} nodes, {edges:,} edges; {self.rows:,} pairs an epoch\n"
            f"{options.dim} dimensions, walks of {options.length} nodes, window {options.window}, p {options.p:g}, "
            f"q {options.q:g}, {options.negatives} negatives, first step {options.step:g}, at most "
            f"{options.exchange_every:,} walks between exchanges"
        )


def agreement(vectors: Any, communities: Array) -> float | None:
    """The normalized mutual information of the communities with as many clusters by k-means: 1 if they agree. Local.

    None: scikit-learn, which finds the clusters, is not installed.
    """
    try:
        from sklearn.cluster import KMeans
        from sklearn.metrics import normalized_mutual_info_score
    except ImportError:
        return None
    clusters = KMeans(int(communities.max()) + 1, n_init=_STARTS, random_state=0).fit_predict(vectors)
    return float(normalized_mutual_info_score(communities, clusters))


class Program(harness.Program):
    """The command line."""

    measures = (Column("loss", "loss", ".4f"), Column("nmi", "NMI", ".4f"))
    traffic = TRAFFIC[:1]

    def add_options(self, parser: Parser) -> None:
        add, whole, real = parser.add_argument, parser.whole, parser.real
        add("edges", nargs="?", metavar="EDGES", help="lines with the names of two nodes, also .gz .bz2 .xz; lines "
            "that start with # are comments (default: a graph of 5 communities, generated from the seed)")  # fmt: skip
        add("--labels", metavar="FILE", help="lines with a node and its community, to measure the NMI of clusters")
        whole("--dim", default=64, metavar="K", text="dimensions of a vector")
        whole("--walks", default=10, least=0, dest="epochs", text="walks from each node")
        whole("--length", default=40, least=2, text="nodes per walk")
        whole("--window", default=5, text="maximum steps between the nodes of a pair")
        whole("--negatives", default=5, text="negative samples per pair")
        # Neighbours are drawn until one is taken, which for smaller weights lasts for ever.
        weight = harness.real_number("from 0.0001 to 10000", lambda found: 1e-4 <= found <= 1e4)
        real("--p", 1.0, "1/p: weight of a step back", weight)
        real("--q", 1.0, "1/q: weight of a step away", weight)
        real("--step", 0.025, "initial step size; it decays linearly to 0", harness.positive_number)
        add("--model", metavar="FILE", help="start from vectors written by --save")
        whole("--exchange-every", default=50, text="maximum walks of all ranks between two exchanges")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return [("EDGES", options.edges), ("--labels", options.labels), ("--model", options.model)]

    def load(self, options: Namespace) -> Problem:
        return Problem(options, *malt.together(lambda: graph.chosen(options)))


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
