"""A model that ranks keep in step: four lines for an existing training loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import index
from types import TracebackType
from typing import Any

import numpy as np

from dstorm import ClosedError, parse
from malt import consensus, session
from malt.agreement import agree
from malt.vectors import vector
from vol import AVG, SUM, Graph, Vector, as_graph
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
    w <- base + (d_own + sum of d_received) / (in-degree + 1). `graph`, `sync`, `check_finite`: as for
    malt.vector.

    ValueError, the same on all ranks: a bad argument on one of them, or arguments that differ. MemoryError, on all
    ranks: the vectors do not fit. Parameters are as before then.
    """

    def __init__(
        self, params: Any, every: int = 1, average: str = "model", graph: Any = "auto", sync: str = "asp",
        check_finite: bool = False,
    ) -> None:  # fmt: skip
        self._world = world = session.world()
        self._transport = world.transport
        (self._params, self._every), _ = agree(
            world.transport, "malt.Replica", lambda: _check(params, every, average, as_graph(graph, world.size), sync)
        )
        self._delta = average == "delta"
        self._count = 0
        self._finished = False
        self._check_finite = check_finite
        self._parts: list[_Part] = []
        try:
            for arrays in _by_dtype(self._params):
                self._parts.append(_Part(arrays, self._delta, graph=graph, sync=sync, check_finite=check_finite))
        except MemoryError:  # on all ranks alike
            self.close()
            raise
        for array in self._params:
            self._transport.broadcast(array)
        for part in self._parts:
            part.start()

    def step(self, n: int = 1) -> bool:
        """Count `n` examples or batches; exchange when another `every` are full. Whether it did. One-sided.

        TypeError, ValueError: `n` is not a whole number from 0 up. ClosedError: after finish, close or malt.finalize.
        """
        if type(n) is not int or n < 0:
            n = _whole("n", n, 0)
        if self._parts[0].vector.closed:
            raise ClosedError("Replica.step: this replica has left, by finish, close or malt.finalize")
        before, self._count = self._count, self._count + n
        due = self._count // self._every > before // self._every
        if due:
            for part in self._parts:
                part.exchange()
        return due

    def finish(self) -> None:
        """End with one and the same model on all ranks, bit by bit: the mean of theirs; with check_finite of those that
        are finite. Collective; a second call does nothing. Ranks that are still training are not held up before they
        call it.

        ClosedError: after malt.finalize. DeadlinePassed: who is missing.
        """
        if self._finished:
            return
        if self._world.closed:
            raise ClosedError("Replica.finish: malt.finalize was called before, and ended the session of this replica")
        self.close()
        self._transport.barrier("Replica.finish")
        consensus.mean(self._transport, self._params, check_finite=self._check_finite)
        self._finished = True

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

    def __init__(self, arrays: Sequence[Array], delta: bool, **options: Any) -> None:
        self._arrays = arrays
        self._delta = delta
        self._in_place = not delta and len(arrays) == 1
        if self._in_place:
            self.vector = vector(arrays[0], **options)
            return
        flat = np.concatenate([array.reshape(-1) for array in arrays])
        self.vector = vector(flat, **options)

    def start(self) -> None:
        """Take the parameters as they are now for those that all ranks start from."""
        if not self._in_place:
            self._copy_in()
            self._base = self.vector.array.copy()

    def exchange(self) -> None:
        self._load()
        self.vector.scatter()
        self.vector.gather(SUM if self._delta else AVG)
        self._store()

    def _load(self) -> None:
        if self._in_place:
            return
        self._copy_in()
        if self._delta:
            np.subtract(self.vector.array, self._base, out=self.vector.array)

    def _copy_in(self) -> None:
        start = 0
        for array in self._arrays:
            self.vector.array[start : start + array.size] = array.reshape(-1)
            start += array.size

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


def _check(
    params: Any, every: int, average: str, mesh: Graph, sync: str
) -> tuple[tuple[list[Array], int], Mapping[str, Any]]:
    arrays = _arrays(params)
    every = _whole("every", every, 1)
    if average not in _AVERAGES:
        raise ValueError(f"average {average!r} is not valid: use {', '.join(map(repr, _AVERAGES))}")
    names = [repr(key) for key in (params if isinstance(params, Mapping) else range(len(arrays)))]
    described = [f"{name}: {array.dtype.str}{list(array.shape)}" for name, array in zip(names, arrays, strict=True)]
    same = {"params": described, "average": average, "graph": mesh.name, "sync": parse(sync).name}
    return (arrays, every), same


def _whole(name: str, number: Any, least: int) -> int:
    """`number` as an int. TypeError: it is not a whole number; ValueError: it is below `least`."""
    message = f"{name} must be a whole number from {least} up, got {number!r}"
    if isinstance(number, bool) or not hasattr(number, "__index__"):
        raise TypeError(message)
    if index(number) < least:
        raise ValueError(message)
    return index(number)


def _arrays(params: Any) -> list[Array]:
    if isinstance(params, Mapping):
        named = [(f"params[{key!r}]", params[key]) for key in params]
    elif isinstance(params, (list, tuple)):
        named = [(f"params[{place}]", array) for place, array in enumerate(params)]
    else:
        named = [("params", params)]
    for name, array in named:
        _check_array(name, array)
    if not named:
        raise ValueError("params holds no arrays")
    return [np.asarray(array) for _, array in named]  # a matrix would stay one through every reshape


def _check_array(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        kind = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be a NumPy array of floating-point numbers, got {kind}")
    if array.dtype.itemsize > 8 or not array.dtype.isnative:
        raise TypeError(f"{name} must be of float16, 32 or 64 in native byte order, got {array.dtype}")
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} is a MaskedArray, whose mask would not be exchanged: pass np.asarray(it), a view")
    remedy = "a copy, which the loop must then use in its place"
    if not array.flags.c_contiguous:
        raise ValueError(f"{name} must be C-contiguous, to be updated in place: np.ascontiguousarray makes {remedy}")
    if not array.flags.writeable:
        raise ValueError(f"{name} must be writable, to be updated in place: its method copy makes {remedy}")


def _by_dtype(arrays: Sequence[Array]) -> list[list[Array]]:
    kinds = dict.fromkeys(array.dtype for array in arrays)
    return [[array for array in arrays if array.dtype == kind] for kind in kinds]
