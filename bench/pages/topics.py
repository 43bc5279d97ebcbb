"""Compares apps.lda with scikit-learn and tomotopy.

python -m bench.pages.topics [--json docs/topics.json]
"""

from __future__ import annotations

import statistics
import time
from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from apps.lda.corpus import Corpus, planted
from apps.lda.measuring import HeldOut
from bench.harness import document, jobs
from bench.harness.document import Measured, reached
from bench.harness.rest import Others
from bench.harness.timing import turns
from dstorm.words import count

TOPICS, ALPHA, BETA, ITERATIONS, SWEEPS, ROUNDS = 50, 0.1, 0.01, 10, 300, 3
"""`ITERATIONS`: of scikit-learn, whose perplexity is to be reached. Each round has a seed of its own, from 0 on."""
DOCUMENTS, WORDS, LENGTH, TESTED = 2000, 3000, 150, 200
Curve = list[dict[str, Any]]
"""Seconds and perplexity, again and again: epochs, as those of a report."""


def uci(corpus: Corpus, path: Path) -> Path:
    """Write a corpus in UCI's format. Returns the path."""
    counts = matrix(corpus).tocoo()
    rows = np.stack([counts.row + 1, counts.col + 1, counts.data], axis=1)
    np.savetxt(path, rows, "%d", header="\n".join(map(str, (*counts.shape, counts.nnz))), comments="")
    return path


def matrix(corpus: Corpus) -> Any:
    """The counts of words by document."""
    ones = np.ones(len(corpus.words), np.int64)
    shape = len(corpus.starts) - 1, corpus.vocabulary
    made = sp.csr_matrix((ones, corpus.words, corpus.starts), shape=shape, copy=True)  # changed in the next line
    made.sum_duplicates()
    return made


def scikit_learn(train: Corpus, held: HeldOut) -> tuple[Curve, float]:
    """Its seconds and perplexity at the end, and tokens a second."""
    from sklearn.decomposition import LatentDirichletAllocation

    made = LatentDirichletAllocation(
        TOPICS, doc_topic_prior=ALPHA, topic_word_prior=BETA, max_iter=ITERATIONS, random_state=0
    )
    start = time.perf_counter()
    made.fit(matrix(train))
    seconds = time.perf_counter() - start
    found = perplexity(held, (made.components_ - BETA).T, train.vocabulary)
    return [{"seconds": seconds, "perplexity": found}], ITERATIONS * len(train.words) / seconds


def tomotopy(train: Corpus, test: Corpus, workers: int, seed: int) -> tuple[Curve, float]:
    """Its curve, and tokens a second."""
    import tomotopy as peer

    held, made = HeldOut(test, seed, set()), peer.LDAModel(k=TOPICS, alpha=ALPHA, eta=BETA, seed=1 + seed)
    made.optim_interval = 0  # the priors stay
    for first, last in zip(train.starts[:-1], train.starts[1:], strict=True):
        made.add_doc(list(map(str, train.words[first:last])))
    curve, seconds = [], 0.0
    for _ in range(SWEEPS // 5):
        start = time.perf_counter()
        made.train(5, workers=workers)
        seconds += time.perf_counter() - start
        counts = np.zeros((train.vocabulary, TOPICS))
        numbers, totals = np.array(list(map(int, made.used_vocabs))), np.array(made.get_count_by_topics())
        for topic in range(TOPICS):
            smooth = np.array(made.get_topic_word_dist(topic)) * (totals[topic] + len(numbers) * BETA)
            counts[numbers, topic] = smooth - BETA
        curve.append({"seconds": seconds, "perplexity": perplexity(held, counts, train.vocabulary)})
    return curve, SWEEPS * len(train.words) / seconds


def perplexity(held: HeldOut, counts: Any, words: int) -> float:
    return held.perplexity(counts[held.words], counts.sum(axis=0), ALPHA, BETA, words)


def ours(ranks: int, train: Path, test: Path, seed: int) -> tuple[Curve, float]:
    """The curve of apps.lda, and tokens a second."""
    words = ["--topics", TOPICS, "--alpha", ALPHA, "--beta", BETA, "--epochs", SWEEPS, "--seed", seed]
    report = jobs.report(ranks, "apps.lda", train, "--test", test, *words)
    return [one for one in report["epochs"] if one["perplexity"] is not None], report["final"]["examples_per_s"]


def contenders(train: Corpus, test: Corpus, files: tuple[Path, Path]) -> Iterator[tuple[str, Any]]:
    """The name of each that is timed, and its run with a seed."""
    for some in (1, 2):
        yield f"tomotopy, {count(some, 'worker')}", partial(tomotopy, train, test, some)
        yield f"apps.lda, {count(some, 'rank')}", partial(ours, some, *files)


def measured(options: Namespace) -> Measured:
    """The figures of the page. It starts jobs."""
    others, folder, (train, test) = Others(), options.scratch, planted(3, DOCUMENTS, WORDS, TOPICS, LENGTH, TESTED)
    files = uci(train, folder / "train"), uci(test, folder / "test")
    named = dict(contenders(train, test, files))
    found = {"scikit-learn": [scikit_learn(train, HeldOut(test, 0, set()))], **turns(named, ROUNDS)}
    ends = {who: statistics.median(curve[-1]["perplexity"] for curve, _ in runs) for who, runs in found.items()}
    rates = {who: statistics.median(rate for _, rate in runs) for who, runs in found.items()}
    targets = ends["scikit-learn"], 1.01 * max(ends[who] for who in named)
    heads = [f"seconds to perplexity {targets[0]:.0f}", f"to {targets[1]:.0f}, 1 % above the highest end"]
    rows = [["", *heads, "perplexity at the end", "tokens/s"]]
    for who, runs in found.items():
        rows.append([who, *(seconds_to(one, runs) for one in targets), f"{ends[who]:.0f}", f"{rates[who]:,.0f}"])
    speedup = rates["apps.lda, 2 ranks"] / rates["apps.lda, 1 rank"]
    return {"tables": {"runs": rows}, "figures": {"rounds": ROUNDS, "speedup": speedup, "others": others.share()}}


def seconds_to(target: float, runs: list[tuple[Curve, float]]) -> str:
    """The median of the seconds that runs take to this perplexity."""
    return reached(statistics.median(jobs.seconds_to(target, "perplexity", {"epochs": curve}) for curve, _ in runs))


if __name__ == "__main__":
    document.measure("bench.pages.topics", str(__doc__), measured)
