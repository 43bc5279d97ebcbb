"""Measures how well topics predict held-out documents, and lists the words of each topic."""

from __future__ import annotations

import math
from argparse import Namespace
from itertools import chain
from typing import Any

import numpy as np

import malt
from apps.harness import Measures
from apps.lda import kernels
from apps.lda.corpus import Corpus, Data
from apps.lda.counts import Counts
from apps.lda.kernels import Doubles, Floats
from malt.data import rows_of
from malt.models import gathered

TOP, SHOWN, MEASURED = 8, 20, 20
"""How many words of a topic, and how many topics, are shown; how many epochs are measured on held-out documents."""


class HeldOut:
    """This rank's part of the documents to test on. Local."""

    def __init__(self, corpus: Corpus, seed: int, failed: set[int]) -> None:
        order = np.random.default_rng([seed, 1]).random(len(corpus.words))
        document = np.repeat(np.arange(len(corpus.starts) - 1), corpus.lengths())
        # Halves of documents are drawn: words ascend in them.
        mixed = corpus.words[np.lexsort((order, document))]
        mine = rows_of(len(corpus.starts) - 1, malt.rank(), failed)
        chosen = np.isin(document, mine)
        self.words, self._tokens = np.unique(mixed[chosen], return_inverse=True)
        """The words of these documents."""
        lengths = corpus.lengths()
        self._starts = np.concatenate([[0], np.cumsum(lengths[mine])])
        self._completed = int((lengths // 2).sum())

    def perplexity(self, counts: Floats, totals: Doubles, alpha: float, beta: float, vocabulary: int) -> float:
        """exp(-mean log p) of the second halves of documents, given the first. `counts`: of `words`. Collective."""
        topics = ((counts + beta) / (totals + vocabulary * beta)).astype(np.float32)
        loss = np.array(kernels.complete(self._starts, self._tokens.astype(np.int32), topics, alpha))
        malt.allreduce(loss, "sum")
        return math.exp(-float(loss) / self._completed) if self._completed else math.nan


class Measuring:
    """The measures at the ends of epochs after epoch `first`, and of the final counts."""

    def __init__(self, data: Data, options: Namespace, first: int) -> None:
        self._data, self._options, self._first = data, options, first
        self._every = -(-options.epochs // MEASURED)
        self._kept: list[Measures] = []
        self._topics: list[list[str]] = []

    def take(self, counts: Counts, failed: set[int]) -> None:
        """Measure these counts from here on. `failed`: the ranks whose documents others have. Local."""
        self._counts, test = counts, self._data.test
        self._test = None if test is None else HeldOut(test, self._options.seed, failed)

    def keep(self, loss: float, epoch: int) -> None:
        """Keep the measures of this epoch, from 1. `loss`: the mean of -log p of a token. Collective.

        An epoch that comes again takes the place of what it was.
        """
        self._kept[epoch - 1 - self._first :] = [self._measures(loss, epoch % self._every == 0)]

    def of_all(self, loss: float) -> list[Measures]:
        """The measures of all epochs, and those of the counts as they are now. Collective."""
        self._topics = self._top_words()
        final: dict[str, Any] = {**self._measures(loss, True), "topics": self._topics}
        return [*self._kept, final]

    def _measures(self, loss: float, with_test: bool) -> Measures:
        return {
            "train_perplexity": math.exp(loss) if math.isfinite(loss) else None,
            "perplexity": self._perplexity(self._test) if with_test and self._test else None,
        }

    def _perplexity(self, test: HeldOut) -> float:
        rows, options = self._counts.of_words(test.words), self._options
        return test.perplexity(rows, self._counts.totals, options.alpha, options.beta, len(self._counts.places))

    def topics(self) -> str:
        """The text of the topics, once `of_all` has been called. Local."""
        more = len(self._topics) - SHOWN
        lines = ["top words of each topic:", *(" ".join(words) for words in self._topics[:SHOWN])]
        return "\n".join(lines + [f"and of {more:,} more topics: --json"] * (more > 0))

    def _top_words(self) -> list[list[str]]:
        """The most frequent words of each topic, the topic with the most tokens first. Collective."""
        local, words, totals = self._counts.local, self._counts.words, self._counts.totals
        best = np.argsort(-local, axis=0, kind="stable")[:TOP]
        own = [
            [[float(local[row, topic]), int(words[row])] for row in rows if local[row, topic]]
            for topic, rows in enumerate(best.T)
        ]
        theirs = gathered(own).values()
        merged = [sorted(chain(*(one[topic] for one in theirs)), reverse=True)[:TOP] for topic in range(len(totals))]
        order = np.argsort(-totals, kind="stable")
        return [[self._name(word) for _, word in merged[topic]] for topic in order]

    def _name(self, word: int) -> str:
        names = self._data.names
        return str(word + 1) if names is None else names[word]
