"""The vectors of all nodes, split by dimension: each rank holds some of the numbers of every vector.

All ranks visit the same pairs. They add up their parts of the scalar products, and each changes its own numbers: so
scalars travel, and vectors do not (PS2, SIGMOD 2019, section on DeepWalk).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from functools import partial
from typing import Any

import numpy as np

import malt
from apps.embed import kernels
from apps.embed.kernels import Floats, Pairs
from apps.harness import Array
from malt.models import Sums, compared_parts

_STALE = 0.5
"""What the step sizes of a node's pairs may add up to in an exchange.

Products are those of the vectors before the exchange. So the steps of a node in it add up as if none had seen the
others, and hubs diverge where that is too much: from 2.4 on, in graphs whose degrees follow a power law. At 0.5 the
loss is 0.4 % above that of steps pair by pair, and clusters are the same.
"""


class Vectors:
    """`own` and `near`: sharded vectors of shape (dimensions, nodes). The constructor is collective.

    `found`: memory for the products of the pairs of an exchange.
    """

    def __init__(self, dim: int, nodes: int, found: tuple[int, int], saved: Mapping[str, Any]) -> None:
        self.own = saved["own"] if saved else malt.sharded((dim, nodes))
        self.near = saved["near"] if saved else self.own.derive()
        self._sums = np.empty(found[0] * found[1] + 1, np.float32)
        self._negatives = found[1]
        self._counts = np.zeros((2, nodes), np.int32)
        self.traffic = Sums()
        self._take()

    def start(self, seed: int, kept: Container[int] = ()) -> None:
        """Draw the first vectors, but for dimensions `kept`: the same numbers on any number of ranks. Local."""
        dim, nodes = self.own.shape
        for place, dimension in enumerate(range(dim)[self.own.range]):
            if dimension not in kept:
                self.own.local[place] = (np.random.default_rng([seed, 1, dimension]).random(nodes) - 0.5) / dim
        self._take()

    def rebuild(self, seed: int) -> int:
        """Share the dimensions among the live ranks. Those that none has begin as by `start`: how many. Collective.

        PeerLost, on all ranks: another rank has failed. What this rank has is not lost: it may be called again.
        """
        own = malt.sharded(self.own.shape)
        near = own.derive()
        there = malt.allgather([self._held.start, self._held.stop])  # of all that have a part of these, or more
        for vector, part in ((own, self._own), (near, self._near)):
            malt.together(partial(vector.push, np.ascontiguousarray(part.T), self._held))
        malt.barrier()  # all is there
        self.own, self.near = own, near
        kept = {one for held in there if held is not None for one in range(*held)}
        self.start(seed, kept)
        return len(range(own.shape[0])) - len(kept)

    def put(self, own: Floats, near: Floats) -> None:
        """Take vectors of shape (nodes, dimensions). Local."""
        self.own.local[...], self.near.local[...] = (rows.T[self.own.range] for rows in (own, near))
        self._take()

    def _take(self) -> None:
        """Copy what this rank holds, by node, as pairs need it."""
        self._held = self.own.range
        self._own, self._near = (np.ascontiguousarray(part.local.T) for part in (self.own, self.near))

    def give(self) -> None:
        """Copy it back. Local."""
        self.own.local[...], self.near.local[...] = self._own.T, self._near.T

    def learn(self, pairs: Pairs, step: float) -> float:
        """Take a step for each pair. Returns their losses. Collective. PeerLost, on all ranks: a part is lost."""
        loss, first, most = 0.0, 0, max(int(_STALE / step), 1)
        while first < len(pairs):
            end = kernels.exchange_end(pairs, first, most, *self._counts)
            loss += self._exchange(pairs[first:end], step)
            first = end
        return loss

    def _exchange(self, pairs: Pairs, step: float) -> float:
        """Learn from these, whose products are added up at once."""
        sums = self._sums[: len(pairs) * self._negatives + 1]
        found = sums[:-1].reshape(len(pairs), -1)
        kernels.products(self._own, self._near, pairs, found)
        sums[-1] = 1
        self.traffic.take(sums)
        if sums[-1] < len(self.own.owners):
            malt.barrier()  # raises it
        return float(kernels.learn(self._own, self._near, pairs, found, step))

    def whole(self) -> tuple[Floats, Floats]:
        """All vectors, of shape (nodes, dimensions). One-sided."""
        return self.own.pull().T, self.near.pull().T

    def compared(self) -> Mapping[str, Array]:
        """The hash of each part, which is the same on all ranks. Collective."""
        return compared_parts(self.own.local.tobytes() + self.near.local.tobytes(), self.own.owners)
