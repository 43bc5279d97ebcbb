"""A model that ranks keep in step: four lines for an existing training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from types import TracebackType
from typing import Any

import numpy as np

from malt import session
from malt.agreement import agree
from malt.vectors import vector
from vol import AVG, SUM, Vector
from vol.update import Array

_AVERAGES = ("model", "delta")


class Replica:
    """This rank's replica of the parameters of a model, exchanged with peers every so many steps.

        replica = malt.Replica(w, every=1000)
        for i in malt.shard(n_rows): ...
            replica.step()
        replica.finish()

    Collective. `params`: an array, or a dict or list of arrays, which the loop goes on changing in place; all ranks
    start from rank 0's. `every`: examples or batches, as counted by `step`, between two exchanges. `average`: "model":
    w <- mean of own and received. "delta": d = change since the last exchange is sent, and
    w <- base + (d_own + sum of d_received) / (in-degree + 1). `graph`, `sync`: as for malt.vector.

    ValueError, the same on all ranks: a bad argument on one of them, or arguments that differ.
    """

    def __init__(
        self, params: Any, every: int = 1, average: str = "model", graph: Any = "auto", sync: str = "asp"
    ) -> None:
        world = session.world()
        self._transport = world.transport
        (self._params, self._every), _ = agree(world.transport, "malt.Replica", lambda: _check(params, every, average))
        self._delta = average == "delta"
        self._count = 0
        self._finished = False
        for array in self._params:
            self._transport.broadcast(array)
        self._parts = [_Part(arrays, self._delta, graph, sync) for arrays in _by_dtype(self._params)]

    def step(self, n: int = 1) -> bool:
        """Count `n` examples or batches; exchange when another `every` are full. Whether it did. One-sided."""
        before, self._count = self._count, self._count + n
        due = self._count // self._every > before // self._every
        if due:
            for part in self._parts:
                part.exchange()
        return due

    def finish(self) -> None:
        """End with one and the same model on all ranks, bit by bit: the mean of theirs. Collective; a second call
        does nothing. Ranks that are still training are not held up before they call it."""
        if self._finished:
            return
        self._finished = True
        self.close()
        self._transport.barrier("Replica.finish")
        for array in self._params:
            self._transport.mean(array)

    def close(self) -> None:
        """Leave without a common model: peers no longer wait for this rank. One-sided."""
        for part in self._parts:
            part.vector.close()

    @property
    def vectors(self) -> list[Vector]:
        """The vectors that carry the parameters, one a dtype: for their statistics."""
        return [part.vector for part in self._parts]

    def __enter__(self) -> Replica:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.close()


class _Part:
    """The parameters of one dtype, as one vector. A lone array that allows it is the vector's own, without a copy."""

    def __init__(self, arrays: Sequence[Array], delta: bool, graph: Any, sync: str) -> None:
        self._arrays = arrays
        self._delta = delta
        self._in_place = not delta and len(arrays) == 1
        if self._in_place:
            self.vector = vector(arrays[0], graph=graph, sync=sync)
            return
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        self._base = flat.copy()
        self.vector = vector(flat, graph=graph, sync=sync)

    def exchange(self) -> None:
        self._load()
        self.vector.scatter()
        self.vector.gather(SUM if self._delta else AVG)
        self._store()

    def _load(self) -> None:
        if self._in_place:
            return
        start = 0
        for array in self._arrays:
            self.vector.array[start : start + array.size] = array.reshape(-1)
            start += array.size
        if self._delta:
            np.subtract(self.vector.array, self._base, out=self.vector.array)

    def _store(self) -> None:
        if self._in_place:
            return
        if self._delta:
            self._base += self.vector.array / self.vector.array.dtype.type(1 + self.vector.in_degree)
        start = 0
        for array in self._arrays:
            source = self._base if self._delta else self.vector.array
            array[...] = source[start : start + array.size].reshape(array.shape)
            start += array.size


def _check(params: Any, every: int, average: str) -> tuple[tuple[list[Array], int], Mapping[str, Any]]:
    arrays = _arrays(params)
    if isinstance(every, bool) or index(every) < 1:
        raise ValueError(f"every must be a whole number from 1 up, got {every!r}")
    if average not in _AVERAGES:
        raise ValueError(f"average {average!r} is not valid: use {', '.join(map(repr, _AVERAGES))}")
    names = [repr(key) for key in (params if isinstance(params, Mapping) else range(len(arrays)))]
    described = [f"{name}: {array.dtype.str}{list(array.shape)}" for name, array in zip(names, arrays, strict=True)]
    return (arrays, index(every)), {"params": described, "average": average}


def _arrays(params: Any) -> list[Array]:
    if isinstance(params, Mapping):
        named = [(f"params[{key!r}]", params[key]) for key in params]
    elif isinstance(params, (list, tuple)):
        named = [(f"params[{place}]", array) for place, array in enumerate(params)]
    else:
        named = [("params", params)]
    for name, array in named:
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            kind = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
            raise TypeError(f"{name} must be a NumPy array of floating-point numbers, got {kind}")
        if not (array.flags.writeable and array.flags.c_contiguous):
            raise ValueError(f"{name} must be writable and C-contiguous, so that it can be updated in place")
    if not named:
        raise ValueError("params holds no arrays")
    return [array for _, array in named]


def _by_dtype(arrays: Sequence[Array]) -> list[list[Array]]:
    kinds = dict.fromkeys(array.dtype for array in arrays)
    return [[array for array in arrays if array.dtype == kind] for kind in kinds]
