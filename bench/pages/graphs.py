"""Compares graphs on simulated ranks: the cost of an exchange, and how fast the model improves.

    python -m bench.pages.graphs [--json docs/graphs.json]

It runs the training loop of apps.svm on the embedded data, each rank on its own rows. All ranks are simulated in one
process, so that the same seed gives the same bits.
"""

from __future__ import annotations

import hashlib
import itertools
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import malt
from apps.linear import reading
from bench.harness import document
from bench.harness.document import Measured, Table
from malt.models import Sharing, linear

GRAPHS = ("all", "exponential", "halton", "auto", "one-peer", "ring")
TARGET = 0.362
"""The objective to reach. It is 3 % above the optimum."""
ROUNDS, EXCHANGE_EVERY = 240, 50
SIZES = (4, 6, 16, 24, 64)
SHAPES: tuple[tuple[str, int | None], ...] = (
    ("all", None), ("ring", None), ("halton", None), ("chord", None), ("exponential", None), ("one-peer", None),
    ("pairs", None), ("base", 1), ("base", 2), ("hypercube", None), ("torus", None), ("random", None), ("star", None),
    ("hierarchical", None), ("auto", None),
)  # fmt: skip
"""The graphs of the second table, and their degrees where it is not the default."""
RANKS, SEED = (4, 16, 64), 0


@dataclass(frozen=True)
class Result:
    """The results of one training run."""

    graph: str
    ranks: int
    bytes_a_rank: float
    rounds: int | None
    objective: float
    model: str


class Training:
    """The data and the objective of the runs."""

    def __init__(self) -> None:
        self.data = malt.open_svmlight(reading.EMBEDDED / "train.svm.xz")
        self.everything = linear.examples(self.data.X, self.data.y)
        self.problem = linear.Problem("hinge", 1e-4, True)

    def run(self, graph: str, ranks: int, seed: int) -> Result:
        """Train on `ranks` simulated ranks along `graph`."""
        dealt = np.random.default_rng(seed).permutation(len(self.data.y))
        sample = linear.examples(self.data.X, self.data.y, dealt[: 8 * linear.STEP_SAMPLE])
        width = self.data.X.shape[1]
        eta0 = linear.first_step(self.problem, sample, width, min(ranks, linear.MAX_TRIAL_RANKS))
        objectives: list[float] = []

        def on_rank(rank: int) -> tuple[int, str]:
            mine = linear.examples(self.data.X, self.data.y, malt.shard(dealt))
            learner = linear.learner(self.problem, mine, width, eta0, Sharing(graph, "bsp", 1))
            generator = np.random.default_rng([seed, 1 + rank])
            for part in itertools.islice(_parts(len(mine.labels), generator), ROUNDS):
                learner.learn(part)
                learner.exchange()
                if rank == 0:
                    objectives.append(linear.objective(self.problem, self.everything, learner.model))
            learner.finish()
            return learner.vectors[0].statistics().bytes_sent, hashlib.sha256(learner.model.tobytes()).hexdigest()

        ended = malt.simulate(on_rank, ranks, seed)
        assert len({model for _, model in ended}) == 1, "the ranks ended with different models"
        reached = next((place + 1 for place, objective in enumerate(objectives) if objective <= TARGET), None)
        sent = sum(nbytes for nbytes, _ in ended) / ranks
        return Result(graph, ranks, sent, reached, objectives[-1], ended[0][1])


def _parts(count: int, generator: np.random.Generator) -> Iterator[linear.Order]:
    """Yield the rows to train on before each exchange, epoch after epoch."""
    while True:
        order = linear.visiting_order(count, generator)
        yield from np.split(order, range(EXCHANGE_EVERY, len(order), EXCHANGE_EVERY))[: len(order) // EXCHANGE_EVERY]


def table(results: Sequence[Result]) -> Table:
    """A row per run."""
    rows = [["graph", "ranks", "peers", "spectral gap", "bytes a rank", "rounds to the target", "objective at the end"]]
    for one in results:
        mesh = malt.graph(one.graph, one.ranks)
        rounds = "-" if one.rounds is None else str(one.rounds)
        gap, sent = f"{mesh.spectral_gap():.3f}", f"{one.bytes_a_rank:,.0f}"
        rows.append([one.graph, str(one.ranks), str(mesh.degree), gap, sent, rounds, f"{one.objective:.4f}"])
    return rows


def shapes() -> Table:
    """A row per graph: what it is at several numbers of ranks."""
    rows = [["graph", *(f"N = {size}" for size in SIZES)]]
    for name, degree in SHAPES:
        cells = []
        for size in SIZES:
            width = 8 if size > 8 else 2
            hosts = [str(rank // width) for rank in range(size)] if name == "hierarchical" else None
            mesh = malt.graph(name, size, degree, hosts=hosts)
            steps = range(1, mesh.period + 1)
            messages = f"{sum(len(mesh.out(r, t)) for t in steps for r in range(size)) / mesh.period:,.1f}"
            facts = (mesh.degree, messages.removesuffix(".0"), mesh.rounds(), f"{mesh.spectral_gap():.2f}")
            cells.append(" / ".join(map(str, facts)))
        rows.append([f"{name}{f', degree {degree}' if degree else ''}", *cells])
    return rows


def measured(_: Namespace) -> Measured:
    """The figures of the page."""
    training = Training()
    results = []
    for ranks in RANKS:
        for graph in GRAPHS:
            results.append(training.run(graph, ranks, SEED))
            print(results[-1], flush=True)
    return {"tables": {"runs": table(results), "shapes": shapes()}, "figures": {}}


if __name__ == "__main__":
    document.measure("bench.pages.graphs", str(__doc__), measured)
