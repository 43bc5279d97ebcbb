"""The documents of one rank: their tokens, and the topic of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import malt
from apps.lda import kernels
from apps.lda.corpus import Corpus
from apps.lda.counts import Counts
from apps.lda.kernels import Doubles, Floats, Numbers


class Documents:
    """Some documents of a corpus, of which the counts have parts. Local, unless they say Collective."""

    def __init__(self, corpus: Corpus, mine: NDArray[np.int64], counts: Counts, alpha: float, beta: float) -> None:
        self._counts, self._alpha, self._beta = counts, alpha, beta
        lengths = corpus.lengths()[mine]
        document = np.repeat(np.arange(len(mine)), lengths)
        starts = np.cumsum(lengths) - lengths
        tokens = np.arange(len(document)) - starts[document] + corpus.starts[mine][document]
        """The number in the corpus of each token."""
        places = counts.places[corpus.words[tokens]]
        order = np.lexsort((places, document))
        self.tokens = tokens[order]
        self._places = places[order].astype(np.int32)
        self._vocabulary = corpus.vocabulary
        parts = len(counts.bounds) - 1
        part = np.searchsorted(counts.bounds, self._places, side="right") - 1
        sizes = np.bincount(document * parts + part, minlength=len(mine) * parts)
        ends = np.concatenate([[0], np.cumsum(sizes)])
        self._ends = ends[parts * np.arange(len(mine))[:, np.newaxis] + np.arange(parts + 1)]
        self._assigned = np.empty(len(self.tokens), np.int32)

    def begin(self, topics: Numbers) -> None:
        """Take the topics of all tokens of the corpus, and add those of this rank's to the counts. Collective."""
        self._assigned[:] = topics[self.tokens]

        def add(part: int, first: int, rows: Floats, totals: Doubles) -> float:
            kernels.count(self._ends, part, self._places, self._assigned, first, rows, totals)
            return 0.0

        self._counts.visit(add)

    def sweep(self, seed: list[int]) -> float:
        """Draw the topics of all tokens anew. Returns the sum of log p(word) over all ranks. Collective."""
        generator = np.random.default_rng([*seed, malt.rank()])

        def draw(part: int, first: int, rows: Floats, totals: Doubles) -> float:
            return float(
                kernels.sweep(
                    self._ends, part, self._places, self._assigned, first, rows, totals, self._alpha, self._beta,
                    self._vocabulary, generator,
                )
            )  # fmt: skip

        return self._counts.visit(draw)

    def topics(self, count: int) -> Numbers:
        """The topics of all `count` tokens of the corpus. Collective. PeerLost, on all ranks: as `Counts.visit`."""
        whole = self.known(count)
        malt.barrier()  # raises PeerLost where the topics of a rank are missing
        return whole

    def known(self, count: int) -> Numbers:
        """The topics of all `count` tokens of the corpus, -1 of those that live ranks do not have. Collective."""
        whole = np.full(count, -1, np.int32)
        for tokens, assigned in zip(malt.allgather(self.tokens), malt.allgather(self._assigned), strict=True):
            if tokens is not None and assigned is not None:
                whole[tokens] = assigned
        return whole
