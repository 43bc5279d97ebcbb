"""All that is compiled: a sweep of collapsed Gibbs sampling, and the shares of topics in documents that are tested.

Counts are float32, exact up to 2^24. Row i of `counts` has the topics of a word, counted from the first of its part.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from malt.kernels import Kernels

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Numbers = NDArray[np.int32]
Places = NDArray[np.int64]
_BLOCK: Final = 32
"""Weights that are skipped at once in a search."""
_TINY: Final = 1e-200
_ROUNDS: Final = 30
kernel = Kernels(fast=True, slower=70)


@kernel()
def _sum(weights: Floats, size: int) -> np.float32:
    """The sum of the first weights.

    It has a loop of its own: where a loop that adds also stores, the order of additions depends on where in memory the
    arrays are, because it is vectorized only if they are far enough apart.
    """
    total = np.float32(0.0)
    for place in range(size):
        total += weights[place]
    return total


@kernel()
def _found(weights: Floats, topics: int, total: float, drawn: float) -> int:
    """The topic that a number from 0 to 1 stands for. `weights`: zeros behind those of the topics."""
    rest, block = np.float32(drawn * total), 0
    while block + _BLOCK < len(weights):
        sum_of_block = np.float32(0.0)
        for place in range(block, block + _BLOCK):
            sum_of_block += weights[place]
        if rest < sum_of_block:
            break
        rest -= sum_of_block
        block += _BLOCK
    while block < topics - 1 and rest >= weights[block]:
        rest -= weights[block]
        block += 1
    return min(block, topics - 1)


@kernel()
def sweep(
    ends: Places, part: int, words: Numbers, assigned: Numbers, first: int, counts: Floats, totals: Doubles,
    alpha: float, beta: float, vocabulary: int, generator: np.random.Generator,
) -> float:  # fmt: skip
    """Draw the topics of all tokens of a part of the vocabulary anew. Returns the sum of the logarithms of p(word).

    `ends`: of shape (documents, parts + 1): where the tokens of each part begin, and the last ends. `assigned`: the
    topic of each token; `counts`, `totals`: the tokens of a topic, by word and in all. They are changed.
    """
    topics, loss, product = counts.shape[1], 0.0, 1.0
    weights = np.zeros(-(-topics // _BLOCK) * _BLOCK, np.float32)
    here, inverse = np.empty(topics, np.float32), np.empty(topics, np.float32)
    smooth, low = np.float32(alpha), np.float32(beta)
    for topic in range(topics):
        inverse[topic] = 1.0 / (totals[topic] + vocabulary * beta)
    for document in range(len(ends)):
        begin, end = ends[document, part], ends[document, part + 1]
        if begin == end:
            continue
        here[:] = smooth
        for token in range(ends[document, 0], ends[document, -1]):
            here[assigned[token]] += np.float32(1.0)
        length = ends[document, -1] - ends[document, 0] - 1 + topics * alpha
        for token in range(begin, end):
            row, old = counts[words[token] - first], assigned[token]
            row[old] -= np.float32(1.0)
            here[old] -= np.float32(1.0)
            totals[old] -= 1.0
            inverse[old] = 1.0 / (totals[old] + vocabulary * beta)
            for topic in range(topics):
                weights[topic] = here[topic] * (row[topic] + low) * inverse[topic]
            total = _sum(weights, topics)
            new = _found(weights, topics, float(total), generator.random())
            assigned[token] = new
            row[new] += np.float32(1.0)
            here[new] += np.float32(1.0)
            totals[new] += 1.0
            inverse[new] = 1.0 / (totals[new] + vocabulary * beta)
            product *= total / length
            if product < _TINY:
                loss += math.log(product)
                product = 1.0
    return loss + math.log(product)


@kernel()
def count(
    ends: Places, part: int, words: Numbers, assigned: Numbers, first: int, counts: Floats, totals: Doubles
) -> None:  # fmt: skip
    """Add the tokens of a part of the vocabulary to the counts. Arguments: as `sweep`."""
    for document in range(len(ends)):
        for token in range(ends[document, part], ends[document, part + 1]):
            counts[words[token] - first, assigned[token]] += np.float32(1.0)
            totals[assigned[token]] += 1.0


@kernel()
def draw(words: Numbers, topics: Floats, generator: np.random.Generator, assigned: Numbers) -> None:
    """Draw a topic for each token by the weights of its word: a row of `topics`."""
    size = topics.shape[1]
    weights = np.zeros(-(-size // _BLOCK) * _BLOCK, np.float32)
    for token in range(len(words)):
        for topic in range(size):
            weights[topic] = topics[words[token], topic]
        total = _sum(weights, size)
        assigned[token] = _found(weights, size, float(total), generator.random())


@kernel()
def complete(starts: Places, words: Numbers, topics: Floats, alpha: float) -> float:
    """The sum of the logarithms of p(word) of the second half of each document, given its first half.

    Row i of `topics` has p(word i | topic). The shares of topics in a document are found from its first half: those at
    which expected counts and shares agree (CVB0, Asuncion et al., UAI 2009, without the counts of the token itself).
    """
    size, loss = topics.shape[1], 0.0
    shares, expected, weights = np.empty(size, np.float32), np.empty(size, np.float32), np.empty(size, np.float32)
    for document in range(len(starts) - 1):
        begin, end = starts[document], starts[document + 1]
        middle = (begin + end + 1) // 2
        shares[:] = np.float32(1.0 / size)
        for _ in range(_ROUNDS):
            expected[:] = np.float32(alpha)
            for token in range(begin, middle):
                row = topics[words[token]]
                for topic in range(size):
                    weights[topic] = shares[topic] * row[topic]
                total = _sum(weights, size)
                for topic in range(size):
                    expected[topic] += weights[topic] / total
            for topic in range(size):
                shares[topic] = expected[topic] / np.float32(middle - begin + size * alpha)
        for token in range(middle, end):
            row, total = topics[words[token]], np.float32(0.0)
            for topic in range(size):
                total += shares[topic] * row[topic]
            loss += math.log(total)
    return loss


def compile_kernels() -> None:
    """Compile every kernel, or load it from numba's cache. Local."""
    generator, words, assigned = np.random.default_rng(0), np.zeros(2, np.int32), np.zeros(2, np.int32)
    counts = np.zeros((1, 2), np.float32)
    totals, ends = np.zeros(2), np.array([[0, 2]])
    count(ends, 0, words, assigned, 0, counts, totals)
    sweep(ends, 0, words, assigned, 0, counts, totals, 0.1, 0.1, 1, generator)
    draw(words, counts + 1, generator, assigned)
    complete(np.array([0, 2]), words, counts + 1, 0.1)
