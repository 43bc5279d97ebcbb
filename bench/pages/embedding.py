"""Compares apps.embed with ranks that send vectors, and with steps pair by pair.

python -m bench.pages.embedding [--json docs/embedding.json]
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

import malt
from apps.embed import graph, kernels, planted, program
from apps.embed.kernels import Floats, Pairs
from bench.harness import document, jobs
from bench.harness.document import Measured, Table
from bench.harness.timing import turns
from malt.kernels import Kernels, compile_first

NODES, COMMUNITIES, DIM, LENGTH, WINDOW, NEGATIVES, WALKS = 10_000, 20, 64, 10, 5, 5, 500
"""`WALKS`: those of all ranks between two exchanges."""
PARTS = 5
"""Communities of a graph with hubs."""
RANKS, ROUNDS = (2, 4, 8), 3
"""Of the first table."""
SIZES, SEEDS = (1000, 3000), range(5)
"""Nodes and seeds of the second table."""
WALK, EPOCHS, TOGETHER, STEP = (40, 5), 10, 50, 0.025
"""What apps.embed does by default: nodes of a walk, and its window; walks from each node, and those drawn at once."""
_VECTORS = "vectors"
kernel = Kernels(fast=True)


def send_vectors() -> None:
    """Train for one epoch with vectors that are split by node. Give bytes and seconds a pair. Collective."""
    edges, _ = planted.graph(0, NODES, COMMUNITIES)
    links = graph.graph(np.arange(NODES), edges).links
    own = malt.sharded((NODES, DIM))
    near = own.derive()
    generator = np.random.default_rng([0, malt.rank()])
    own.local[...] = (generator.random(own.local.shape) - 0.5) / DIM
    compile_first(kernels.compile_kernels)
    order, most = np.random.default_rng(0).permutation(NODES).astype(np.int32), kernels.pair_count(LENGTH, WINDOW)
    walk = np.empty(LENGTH, np.int32)
    malt.barrier()
    start = time.perf_counter()
    for first in range(0, NODES, WALKS):
        starts = malt.shard(order[first : first + WALKS])
        pairs = np.empty((len(starts) * most, NEGATIVES + 2), np.int32)
        kernels.draw(links, starts, walk, WINDOW, 1.0, 1.0, generator, pairs)
        centers, places = np.unique(pairs[:, 0], return_inverse=True)
        others, columns = np.unique(pairs[:, 1:], return_inverse=True)
        seen = own.pull(centers), near.pull(others)
        changed = seen[0].copy(), seen[1].copy()
        malt.barrier()  # all have read before the first change
        rows = np.column_stack([places, columns.reshape(len(pairs), -1)]).astype(np.int32)
        products = np.empty((len(pairs), NEGATIVES + 1), np.float32)
        kernels.products(*changed, rows, products)
        kernels.learn(*changed, rows, products, 0.025)
        own.push(changed[0] - seen[0], centers)
        near.push(changed[1] - seen[1], others)
        malt.barrier()
    seconds = (time.perf_counter() - start) / (NODES * most)
    traffic = [one.statistics() for one in (own, near)]
    nbytes = sum(one.bytes_sent + one.bytes_read for one in traffic)
    total = sum(malt.allgather(nbytes)) / (NODES * most)
    jobs.give([total, seconds])


def scalars(ranks: int, edges: Path) -> tuple[float, float]:
    """The same of apps.embed."""
    words = ["--dim", DIM, "--length", LENGTH, "--window", WINDOW, "--negatives", NEGATIVES, "--exchange-every", WALKS]
    [epoch] = jobs.report(ranks, "apps.embed", edges, *words, "--walks", 1)["epochs"]
    return epoch["bytes_sent"] / epoch["examples"], epoch["seconds"] / epoch["examples"]


def vectors(ranks: int, _: Path) -> tuple[float, float]:
    """Bytes and seconds a pair of ranks that send vectors."""
    return tuple(jobs.report(ranks, "bench.pages.embedding", _VECTORS))


def table(folder: Path) -> Table:
    """A row for each number of ranks."""
    rows = [["ranks", "scalars, B a pair", "vectors, B a pair", "ratio", "scalars, us a pair", "vectors, us a pair"]]
    edges = folder / "edges"
    np.savetxt(edges, planted.graph(0, NODES, COMMUNITIES)[0], "%d")
    for ranks in RANKS:
        found = turns({way: lambda _, way=way, ranks=ranks: way(ranks, edges) for way in (scalars, vectors)}, ROUNDS)
        (few, few_s), (many, many_s) = (np.median(one, axis=0) for one in found.values())
        times = [f"{1e6 * seconds:.2f}" for seconds in (few_s, many_s)]
        rows.append([str(ranks), f"{few:,.0f}", f"{many:,.0f}", f"{many / few:.1f}", *times])
    return rows


@kernel()
def _learn_one_by_one(own: Floats, near: Floats, pairs: Pairs, found: Floats, step: float) -> float:
    loss = 0.0
    for row in range(len(pairs)):
        kernels.products(own, near, pairs[row : row + 1], found)
        loss += kernels.learn(own, near, pairs[row : row + 1], found, step)
    return loss


def one_by_one(known: graph.Graph, seed: int) -> tuple[float, float]:
    """NMI and the loss of the last epoch of what apps.embed trains by default, with a step after each pair."""
    nodes, most = len(known.names), kernels.pair_count(*WALK)
    columns = [np.random.default_rng([seed, 1, dimension]).random(nodes) - 0.5 for dimension in range(DIM)]
    own = np.ascontiguousarray(np.stack(columns, axis=1) / DIM, np.float32)
    near, found = np.zeros_like(own), np.empty((1, NEGATIVES + 1), np.float32)
    for epoch in range(EPOCHS):
        generator = np.random.default_rng([seed, 0, epoch + 1])
        order, loss = generator.permutation(nodes).astype(np.int32), 0.0
        for first in range(0, nodes, TOGETHER):
            starts = order[first : first + TOGETHER]
            pairs = np.empty((len(starts) * most, NEGATIVES + 2), np.int32)
            kernels.draw(known.links, starts, np.empty(WALK[0], np.int32), WALK[1], 1.0, 1.0, generator, pairs)
            loss += _learn_one_by_one(own, near, pairs, found, STEP * (1 - (epoch + first / nodes) / EPOCHS))
    return program.agreement(own, known.communities), loss / (nodes * most)


def accuracy(folder: Path) -> Table:
    """A row for each graph with hubs."""
    rows = [["nodes", "seed", "largest degree", "NMI", "pair by pair", "loss", "pair by pair"]]
    for nodes in SIZES:
        for seed in SEEDS:
            edges, labels = folder / f"{nodes}-{seed}.edges", folder / f"{nodes}-{seed}.labels"
            pairs, communities = planted.hubs(seed, nodes, PARTS)
            np.savetxt(edges, pairs, "%d")
            np.savetxt(labels, np.stack([np.arange(nodes), communities], axis=1), "%d")
            final = jobs.report(2, "apps.embed", edges, "--labels", labels, "--seed", seed)["final"]
            known = graph.read(str(edges), str(labels))
            nmi, loss = one_by_one(known, seed)
            degree = np.diff(known.links.starts).max()
            measures = [f"{one:.3f}" for one in (final["nmi"], nmi, final["loss"], loss)]
            rows.append([f"{nodes:,}", str(seed), str(degree), *measures])
    return rows


def measured(options: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    tables = {"bytes": table(options.scratch), "accuracy": accuracy(options.scratch)}
    return {"tables": tables, "figures": {"rounds": ROUNDS}}


if __name__ == "__main__":
    if sys.argv[1:2] == [_VECTORS]:
        send_vectors()
    else:
        document.measure("bench.pages.embedding", str(__doc__), measured)
