"""Compares apps.embed with ranks that send vectors, and with steps pair by pair; writes docs/embedding.md.

python -m bench.pages.embedding [--write docs/embedding.md]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import malt
from apps.embed import graph, kernels, measuring, planted
from apps.embed.kernels import Floats, Pairs
from bench import jobs
from bench.document import new_file
from malt.kernels import Kernels, compile_first

NODES, COMMUNITIES, DIM, LENGTH, WINDOW, NEGATIVES, WALKS = 10_000, 20, 64, 10, 5, 5, 500
"""`WALKS`: those of all ranks between two exchanges."""
RANKS, ROUNDS = (2, 4, 8), 3
HUBS, SEEDS, PARTS = (1000, 3000), range(5), 5
WALK, EPOCHS, TOGETHER, STEP = (40, 5), 10, 50, 0.025
"""What apps.embed does by default: nodes of a walk, and its window; walks from each node, and those drawn at once."""
kernel = Kernels(fast=True)
PAGE = """# What skip-gram on several ranks sends

apps.embed splits vectors by dimension: each rank visits all pairs, scalar products are summed, and no vector travels.
The other way is to split vectors and pairs by node: each rank reads the vectors of its own pairs (`pull`), and adds
changes to them (`push`). A graph of {nodes:,} nodes, {dim} dimensions, {negatives} negative examples a pair, {walks}
walks of {length} nodes at once ({pairs:,} pairs); medians of {rounds} runs in turns. It is made by

    python -m bench.pages.embedding --write docs/embedding.md

| ranks | scalars, B a pair | vectors, B a pair | ratio | scalars, us a pair | vectors, us a pair |
|---|---|---|---|---|---|
{table}

Bytes are those that all ranks send and read. A rank that holds 1/n of the numbers of a vector still sends a scalar for
each product. So each further rank costs as many bytes again, while the bytes of vectors rise to a bound: the gain
shrinks as parts grow in number, as Zhang et al. found (PS2, SIGMOD 2019). A vector that several pairs of an exchange
have in common is read and changed once; so vectors cost less where an exchange has more pairs than there are nodes.
Every rank draws all walks, a part of the time that more ranks do not shorten. Times are of 2 cores: 4 and 8 ranks
take turns on them.

## Many pairs in one exchange

Products are those of the vectors before the exchange. Where a node is in many of its pairs, their steps add up as if
none had seen the others. So an exchange ends before the step sizes of one node's pairs add up to more than 0.5: it is
short in a small graph, at a hub and at a large step, and pairs of one walk do not follow each other. Graphs of
{communities} communities whose degrees follow a power law, with loops, and nodes that have no other edge; 2 ranks,
all else by default. NMI: how well clusters of vectors are communities.

| nodes | seed | largest degree | NMI | pair by pair | loss | pair by pair |
|---|---|---|---|---|---|---|
{accuracy}
"""


def send_vectors(file: Path) -> None:
    """Train for one epoch with vectors that are split by node. Write bytes and seconds a pair to `file`. Collective."""
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
    if malt.lowest():
        file.write_text(json.dumps([total, seconds]))


def vectors(ranks: int) -> tuple[float, float]:
    """Bytes and seconds a pair of ranks that send vectors."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "found.json")
        jobs.run(ranks, "-m", "bench.pages.embedding", "--job", file, quietly=True)
        nbytes, seconds = json.loads(file.read_text())
        return nbytes, seconds


def scalars(ranks: int, edges: Path) -> tuple[float, float]:
    """The same of apps.embed."""
    words = ["--dim", DIM, "--length", LENGTH, "--window", WINDOW, "--negatives", NEGATIVES, "--exchange-every", WALKS]
    [epoch] = jobs.report(ranks, "apps.embed", edges, *words, "--walks", 1)["epochs"]
    return epoch["bytes_sent"] / epoch["examples"], epoch["seconds"] / epoch["examples"]


def table() -> str:
    """A table in Markdown, with a line for each number of ranks."""
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder, "edges")
        np.savetxt(edges, planted.graph(0, NODES, COMMUNITIES)[0], "%d")
        for ranks in RANKS:
            found = np.array([[*scalars(ranks, edges), *vectors(ranks)] for _ in range(ROUNDS)])
            few, few_s, many, many_s = (statistics.median(column) for column in found.T)
            times = f"{1e6 * few_s:.2f} | {1e6 * many_s:.2f}"
            lines.append(f"| {ranks} | {few:,.0f} | {many:,.0f} | {many / few:.1f} | {times} |")
    return "\n".join(lines)


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
    return measuring.agreement(own, known.communities), loss / (nodes * most)


def accuracy() -> str:
    """A table in Markdown, with a line for each graph with hubs."""
    lines = []
    for nodes in HUBS:
        for seed in SEEDS:
            with tempfile.TemporaryDirectory() as folder:
                edges, labels = Path(folder, "edges"), Path(folder, "labels")
                pairs, communities = planted.hubs(seed, nodes, PARTS)
                np.savetxt(edges, pairs, "%d")
                np.savetxt(labels, np.stack([np.arange(nodes), communities], axis=1), "%d")
                final = jobs.report(2, "apps.embed", edges, "--labels", labels, "--seed", seed)["final"]
                known = graph.read(str(edges), str(labels))
            nmi, loss = one_by_one(known, seed)
            degree = np.diff(known.links.starts).max()
            measures = f"{final['nmi']:.3f} | {nmi:.3f} | {final['loss']:.3f} | {loss:.3f}"
            lines.append(f"| {nodes:,} | {seed} | {degree} | {measures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=new_file)
    parser.add_argument("--job", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return send_vectors(options.job)
    pairs = WALKS * kernels.pair_count(LENGTH, WINDOW)
    page = PAGE.format(
        nodes=NODES, dim=DIM, negatives=NEGATIVES, walks=WALKS, length=LENGTH, pairs=pairs, rounds=ROUNDS,
        table=table(), communities=PARTS, accuracy=accuracy(),
    )  # fmt: skip
    print(page)
    if options.write:
        options.write.write_text(page)


if __name__ == "__main__":
    main()
