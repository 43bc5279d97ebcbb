"""Compares apps.embed with ranks that send vectors.

python -m bench.pages.embedding [--json docs/embedding.json]
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path

import numpy as np

import malt
from apps.embed import graph, kernels, planted
from bench.harness import document, jobs
from bench.harness.document import Measured, Table
from bench.harness.timing import turns
from malt.kernels import compile_first

NODES, COMMUNITIES, DIM, LENGTH, WINDOW, NEGATIVES, WALKS = 10_000, 20, 64, 10, 5, 5, 500
"""`WALKS`: those of all ranks between two exchanges."""
RANKS, ROUNDS = (2, 4, 8), 3
_VECTORS = "vectors"


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


def measured(options: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    return {"tables": {"bytes": table(options.scratch)}, "figures": {"rounds": ROUNDS}}


if __name__ == "__main__":
    if sys.argv[1:2] == [_VECTORS]:
        send_vectors()
    else:
        document.measure("bench.pages.embedding", str(__doc__), measured)
