"""All that is compiled: random walks, the pairs of them, and the steps of skip-gram with negative sampling.

A pair is a row of numbers of nodes: a center, a node near it in a walk, and negative examples. Vectors lie by node:
row i of `own` and of `near` is what this rank holds of the two vectors of node i.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from apps.embed.graph import Links
from malt.kernels import Kernels

Pairs = NDArray[np.int32]
Floats = NDArray[np.float32]
Counts = NDArray[np.int32]
kernel = Kernels(fast=True, slower=100)


@kernel()
def _is_edge(links: Links, one: int, other: int) -> bool:
    low, high = links.starts[one], links.starts[one + 1]
    while low < high:
        middle = (low + high) // 2
        if links.neighbours[middle] < other:
            low = middle + 1
        else:
            high = middle
    return bool(low < links.starts[one + 1] and links.neighbours[low] == other)


@kernel()
def _next(links: Links, before: int, node: int, p: float, q: float, generator: np.random.Generator) -> int:
    """A neighbour of `node`, by node2vec's weights: 1/p to go back, 1 to a neighbour of `before`, else 1/q.

    One is drawn evenly, and taken with a probability in proportion to its weight (Yang et al., SOSP 2019).
    """
    first = links.starts[node]
    degree = links.starts[node + 1] - first
    most = max(1.0, 1.0 / p, 1.0 / q)
    while True:
        drawn = links.neighbours[first + int(generator.random() * degree)]
        if before < 0 or (p == 1.0 and q == 1.0):
            return int(drawn)
        if drawn == before:
            weight = 1.0 / p
        elif _is_edge(links, before, drawn):
            weight = 1.0
        else:
            weight = 1.0 / q
        if generator.random() * most < weight:
            return int(drawn)


def _draw(
    links: Links, starts: Pairs, walk: Pairs, window: int, p: float, q: float, generator: np.random.Generator,
    pairs: Pairs,
) -> None:  # fmt: skip
    nodes, length = len(links.threshold), len(walk)
    places = [(one, near) for one in range(length) for near in range(length) if 0 < abs(one - near) <= window]
    centers, others = np.array(places).T
    for first, start in enumerate(starts):
        walk[0] = start
        for step in range(1, length):
            walk[step] = _next(links, walk[step - 2] if step > 1 else -1, walk[step - 1], p, q, generator)
        at = generator.random((len(places), pairs.shape[1] - 2)) * nodes
        drawn = at.astype(np.int64)
        rows = slice(first, first + len(places) * len(starts), len(starts))
        pairs[rows, 0], pairs[rows, 1] = walk[centers], walk[others]
        pairs[rows, 2:] = np.where(at - drawn < links.threshold[drawn], drawn, links.other[drawn])


@kernel(interpreted=_draw)
def draw(
    links: Links, starts: Pairs, walk: Pairs, window: int, p: float, q: float, generator: np.random.Generator,
    pairs: Pairs,
) -> None:  # fmt: skip
    """Fill `pairs` with the pairs of a walk from each of `starts`. `walk`: memory for its nodes.

    A pair of the first walk is followed by one of the second: those of one walk repeat the same nodes.
    """
    nodes, length = len(links.threshold), len(walk)
    for first, start in enumerate(starts):
        row = first
        walk[0] = start
        for step in range(1, length):
            walk[step] = _next(links, walk[step - 2] if step > 1 else -1, walk[step - 1], p, q, generator)
        for place in range(length):
            for near in range(max(place - window, 0), min(place + window + 1, length)):
                if near == place:
                    continue
                pairs[row, 0], pairs[row, 1] = walk[place], walk[near]
                for column in range(2, pairs.shape[1]):
                    at = generator.random() * nodes
                    drawn = int(at)
                    pairs[row, column] = drawn if at - drawn < links.threshold[drawn] else links.other[drawn]
                row += len(starts)


@kernel()
def exchange_end(pairs: Pairs, first: int, most: int, centers: Counts, others: Counts) -> int:
    """The end of the pairs from `first` on of which no node is the center, or another one, of more than `most`.

    `centers`, `others`: zeros, one for each node, and zeros again on return.
    """
    end = first
    while end < len(pairs):
        repeats = centers[pairs[end, 0]]
        for column in range(1, pairs.shape[1]):
            repeats = max(repeats, others[pairs[end, column]])
        if repeats >= most:
            break
        centers[pairs[end, 0]] += 1
        for column in range(1, pairs.shape[1]):
            others[pairs[end, column]] += 1
        end += 1
    for row in range(first, end):
        centers[pairs[row, 0]] = 0
        for column in range(1, pairs.shape[1]):
            others[pairs[row, column]] = 0
    return end


def _products(own: Floats, near: Floats, pairs: Pairs, found: Floats) -> None:
    np.einsum("ij,ikj->ik", own[pairs[:, 0]], near[pairs[:, 1:]], out=found)


def _learn(own: Floats, near: Floats, pairs: Pairs, found: Floats, step: float) -> float:
    margins = np.where(np.arange(found.shape[1]) == 0, found, -found).astype(np.float64)
    slopes = np.exp(-np.logaddexp(0.0, margins))
    rates = (step * np.where(np.arange(found.shape[1]) == 0, slopes, -slopes)).astype(np.float32)
    for pair, rate in zip(pairs, rates, strict=True):
        center, nodes, change = own[pair[0]], pair[1:], np.zeros(own.shape[1], np.float32)
        if len(set(nodes.tolist())) == len(nodes):
            change = rate @ near[nodes]
            near[nodes] += rate[:, np.newaxis] * center
        else:  # a node that comes again has moved
            for one, node in zip(rate, nodes, strict=True):
                change += one * near[node]
                near[node] += one * center
        center += change
    return float(np.logaddexp(0.0, -margins).sum())


@kernel(interpreted=_products)
def products(own: Floats, near: Floats, pairs: Pairs, found: Floats) -> None:
    """Fill `found` with this rank's parts of the products: of the center's vector, and those of the other nodes."""
    for row in range(len(pairs)):
        center = own[pairs[row, 0]]
        for column in range(found.shape[1]):
            other = near[pairs[row, column + 1]]
            total = np.float32(0.0)
            for place in range(len(center)):
                total += center[place] * other[place]
            found[row, column] = total


@kernel(interpreted=_learn)
def learn(own: Floats, near: Floats, pairs: Pairs, found: Floats, step: float) -> float:
    """Take a step for each pair, given the whole products. Returns the sum of -log s(x) - sum of log s(-x')."""
    loss = 0.0
    change = np.empty(own.shape[1], np.float32)
    for row in range(len(pairs)):
        center = own[pairs[row, 0]]
        change[:] = 0
        for column in range(found.shape[1]):
            margin = found[row, column] if column == 0 else -found[row, column]
            falling = math.exp(-abs(margin))
            loss += math.log1p(falling) + max(-margin, np.float32(0.0))
            slope = falling / (1.0 + falling) if margin > 0 else 1.0 / (1.0 + falling)
            rate = np.float32(step * slope if column == 0 else -step * slope)
            other = near[pairs[row, column + 1]]
            for place in range(len(center)):
                change[place] += rate * other[place]
                other[place] += rate * center[place]
        for place in range(len(center)):
            center[place] += change[place]
    return loss


def pair_count(length: int, window: int) -> int:
    """The number of pairs of a walk of `length` nodes: of each node with those at most `window` steps away. Local."""
    return 2 * sum(length - step for step in range(1, min(window, length - 1) + 1))


def compile_kernels() -> None:
    """Compile every kernel, or load it from numba's cache. Local."""
    links = Links(np.array([0, 1, 2]), np.array([1, 0], np.int32), np.ones(2), np.arange(2, dtype=np.int32))
    pairs, found = np.zeros((2, 3), np.int32), np.zeros((2, 2), np.float32)
    walk, vectors = np.zeros(2, np.int32), np.zeros((2, 1), np.float32)
    draw(links, np.zeros(1, np.int32), walk, 1, 1.0, 1.0, np.random.default_rng(0), pairs)
    counts = np.zeros(2, np.int32)
    exchange_end(pairs, 0, 1, counts, counts)
    products(vectors, vectors, pairs, found)
    learn(vectors, vectors, pairs, found, 0.1)
