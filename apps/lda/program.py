"""Topics of documents: latent Dirichlet allocation of bags of words, by collapsed Gibbs sampling.

    python -m apps.lda [CORPUS] [--test TEST] ...               alone
    malt run -n 4 -m apps.lda [CORPUS] [--test TEST] ...        on four ranks

Every rank draws the topics of its own documents' tokens. Counts of words and topics are sharded: at each moment each
rank visits another part of the vocabulary.
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
from apps.harness import TRAFFIC, Array, Column, CommonShares, Measured, Measures, Need, Parser, Start
from apps.lda import corpus, kernels
from apps.lda.corpus import Data
from apps.lda.counts import Counts
from apps.lda.documents import Documents
from apps.lda.kernels import Numbers
from apps.lda.measuring import HeldOut, Measuring
from malt.data import rows_of
from malt.kernels import compile_first

_COPIES = 2
"""Of a part on a rank: one that it visits, and one that another rank may still read."""


class Trainer(harness.Parts):
    """One rank's documents, and its part of the counts."""

    def __init__(self, problem: Problem, start: Start) -> None:
        self._problem, self._options, self._shares = problem, problem.options, start.shares
        self._measuring = Measuring(problem.data, problem.options, start.epoch)
        self._loss = float(start.state["loss"]) if start.state else math.nan
        start.shares.changed(start.shares.present())  # where a rank has failed, others have its documents
        self._build(start.state["topics"] if start.state else problem.first_topics())

    def _build(self, topics: Numbers) -> None:
        """Count these topics of all tokens. Collective. PeerLost, on all ranks: nothing has changed."""
        problem, options, failed = self._problem, self._options, self._shares.failed
        frequencies = np.bincount(problem.train.words, minlength=problem.train.vocabulary)
        counts = Counts(frequencies, options.topics, self._shares.alive)
        mine = rows_of(problem.documents, malt.rank(), failed)
        documents = Documents(problem.train, mine, counts, options.alpha, options.beta)
        documents.begin(topics)
        self._counts, self._documents = counts, documents
        self._measuring.take(counts, failed)
        self.vectors = [*self.vectors, *counts.traffic]

    def rebuild(self) -> str:
        """Count the topics of the tokens that live ranks have. Those of the others begin as at the start."""
        self._counts.close()
        topics = self._documents.known(self._problem.rows)
        anew = topics < 0
        topics[anew] = self._problem.first_topics()[anew]
        self._build(topics)
        return f"the topics of {anew.sum():,} tokens" if anew.any() else ""

    def train(self, epoch: int, order: Any) -> int:
        self._loss = -self._documents.sweep([self._options.seed, epoch]) / self._problem.rows
        return len(self._documents.tokens)

    def model(self) -> Mapping[str, Array]:
        """The hash of each part, as no rank has all."""
        return self._counts.compared()

    def keep(self, epoch: int) -> None:
        self._measuring.keep(self._loss, epoch)

    def measures_of_all(self) -> list[Measures]:
        return self._measuring.of_all(self._loss)

    def conclusion(self) -> str:
        return self._measuring.topics()

    def state(self) -> Mapping[str, Any]:
        return {"topics": self._documents.topics(self._problem.rows), "loss": self._loss}

    def saved(self) -> Mapping[str, Any]:
        """`counts`, the tokens of each topic (a column) by word (a row), alpha and beta, the words."""
        options, names = self._options, self._problem.data.names
        found = {"counts": self._counts.whole().astype(np.int32), "alpha": options.alpha, "beta": options.beta}
        return found if names is None else {**found, "words": np.array(names)}


class Problem(harness.Problem):
    """The documents, and the first topics of their tokens."""

    trains, same = Trainer, ("topics", "alpha", "beta", "seed")

    def __init__(self, options: Namespace, data: Data) -> None:
        assert data.train is not None
        self.options, self.data, self.train = options, data, data.train
        self.rows = len(data.train.words)
        self.documents = len(data.train.starts) - 1

    def memory(self) -> Need:
        topics, words = self.options.topics, self.train.vocabulary
        part, tokens = 4 * topics * -(-words // malt.size()), -(-self.rows // malt.size())
        return Need(_COPIES * part + 32 * tokens, f"{words:,} words make a large model of --topics {topics}",
                    "take fewer --topics or more ranks")  # fmt: skip

    def facts(self) -> dict[str, Any]:
        check = harness.fingerprint(self.train.starts, self.train.words)
        return {"tokens": self.rows, "words": self.train.vocabulary, "CRC-32 of words": check}

    def compile(self) -> None:
        kernels.compile_kernels()

    def shares(self) -> CommonShares:
        return CommonShares(self.documents, "documents")

    def first_topics(self) -> Numbers:
        """The topics that tokens begin with: any, or as the model has them. The same on all ranks."""
        topics, model = np.empty(self.rows, np.int32), self.data.model
        generator = np.random.default_rng([self.options.seed, 0])
        if model is None:
            topics[:] = generator.integers(self.options.topics, size=self.rows)
        else:
            weights = (model + self.options.beta) / (model.sum(axis=0) + len(model) * self.options.beta)
            kernels.draw(self.train.words, weights.astype(np.float32), generator, topics)
        return topics

    def introduction(self, trainer: Trainer) -> str:
        options, test = self.options, self.data.test
        tested = f"; {len(test.words):,} words of {len(test.starts) - 1:,} documents to test on" if test else ""
        return (
            f"{self.rows:,} words of {self.documents:,} documents, {self.train.vocabulary:,} different ones{tested}\n"
            f"{options.topics:,} topics, alpha {options.alpha:g}, beta {options.beta:g}"
        )


class Program(harness.Program):
    """The command line."""

    measures = (Column("train_perplexity", "of training", ".2f"), Column("perplexity", "perplexity", ".2f"))
    rate = "tokens_per_s"
    traffic = (Column("tokens_per_s", "tokens/s", ",.0f"), TRAFFIC[0])

    def add_options(self, parser: Parser) -> None:
        add = parser.add_argument
        add("corpus", nargs="?", metavar="CORPUS", help="a bag of words in UCI or svmlight format, also .gz .bz2 .xz "
            "(default: documents of ten topics, generated from the seed)")  # fmt: skip
        add("--test", metavar="TEST", help="documents on which to measure the perplexity of one half, given the other")
        add("--vocab", metavar="FILE", help="the vocabulary, one word per line, to print the top words of each topic")
        parser.whole("--topics", default=10, metavar="K", text="topics")
        parser.real("--alpha", 0.1, "prior of topics", harness.positive_number)
        parser.real("--beta", 0.01, "prior of words", harness.positive_number)
        add("--model", metavar="FILE",
            help="start from topics written by --save; without CORPUS: measure them on TEST")  # fmt: skip
        parser.whole("--epochs", default=100, least=0, text="passes over the rows")

    def inputs(self, options: Namespace) -> Sequence[tuple[str, harness.Path | None]]:
        return [(f"--{name}".replace("--corpus", "CORPUS"), getattr(options, name))
                for name in ("corpus", "test", "vocab", "model")]  # fmt: skip

    def load(self, options: Namespace) -> Problem | Measured:
        data = corpus.data(options)
        if data.train is not None:
            return Problem(options, data)
        assert data.test is not None and data.model is not None
        compile_first(kernels.compile_kernels)
        test, model = HeldOut(data.test, options.seed, set()), data.model
        totals = model.sum(axis=0, dtype=np.float64)
        found = test.perplexity(model[test.words], totals, options.alpha, options.beta, len(model))
        return Measured([model], {"perplexity": found})


run = partial(harness.run, Program())
"""Runs the program with these arguments on every rank, as `harness.run`."""
