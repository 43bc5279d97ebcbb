"""Dense vectors of ranks that map each other's memory, all in one thread."""

from __future__ import annotations

import numpy as np
from schedules import OneEnd

import malt
from dstorm import parse
from dstorm.transports.mapped import MappedMemory
from dstorm.view import View
from vol.dense import DenseVector


class Mate(OneEnd):
    """The transport of one of some ranks that map each other's memory, `parts`, all in one thread: none may wait."""

    returns = None

    def __init__(self, rank, parts):
        self.rank, self.size, self._parts = rank, len(parts), parts
        self.hosts = ("here",) * len(parts)
        self.view = View(len(parts))
        self.duties: list = []
        self.steps = 0

    def window(self, nbytes):
        assert nbytes <= self._parts[self.rank].nbytes
        return MappedMemory(self.rank, self._parts, lambda: None)

    def connect(self, peers): ...

    def closed(self): ...

    def poll_failures(self): ...

    def count_step(self):
        self.steps += 1

    def pause(self, polls, until):
        raise AssertionError("a rank waits")

    def poll_wait(self, wait):
        raise AssertionError("a rank waits")

    def end_wait(self, in_vain=False): ...


def group(size, length, dtype, sync, depth=2, graph="all", **options):
    nbytes = 64 * size + size * (64 + depth * (128 + length * 8))
    parts = {rank: np.zeros(nbytes, np.uint8) for rank in range(size)}
    made = malt.graph(graph, size)
    vectors = []
    for rank in range(size):
        array = np.random.default_rng(rank).standard_normal(length).astype(dtype)
        vectors.append(DenseVector(array, Mate(rank, parts), made, parse(sync), depth=depth, **options))
    return parts, vectors
