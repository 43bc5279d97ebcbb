"""`malt.sharded`, `malt.reduce_scatter`: all ranks check and compare their arguments, then make the vector."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Final, Literal, overload

import numpy as np

from dstorm import PeerLost, parse
from dstorm.queues.consistency import ASP, Consistency
from dstorm.reduction import OPERATIONS, RanksChanged
from dstorm.transports import shm_space
from dstorm.words import shown
from malt.session.vectors.creation import create
from malt.session.world.world import World
from vol import arguments
from vol.update import Array

if TYPE_CHECKING:
    from vol import ShardedVector, ShardLayout, SparseShardedVector

_DTYPES: Final = ("float32", "float64")
_KINDS: Final = ("dense", "sparse")
_LONGEST: Final = 1 << 63
"""The length of the longest sparse vector."""


@overload
def sharded(
    n: Any, dtype: Any = "float32", name: str | None = None, *, kind: Literal["dense"] = "dense", sync: str = "asp"
) -> ShardedVector: ...  # fmt: skip


@overload
def sharded(
    n: Any, dtype: Any = "float32", name: str | None = None, *, kind: Literal["sparse"], sync: str = "asp"
) -> SparseShardedVector: ...  # fmt: skip


def sharded(
    n: Any, dtype: Any = "float32", name: str | None = None, *, kind: str = "dense", sync: str = "asp"
) -> ShardedVector | SparseShardedVector:  # fmt: skip
    """Return a vector of zeros of which each rank owns a range of about n / malt.size() elements. Collective.

        w = malt.sharded(1_000_000)
        g = w.derive()  # the same rows on the same ranks
        g.push(values, index)  # added at their owners
        malt.barrier()
        w.axpy(-0.1, g)  # each rank for its part; nothing is sent
        print(w.norm(), w.pull([3, 5]))

    `n`: its length, or a shape (n, k), which is split by row. `dtype`: float32 or float64. `name`: for error messages,
    the same on all ranks.

    `kind`: "sparse" stores only entries that were pushed to, or came from another vector (axpy, sub, mul, copy, zip),
    in 32 to 64 bytes each. n is a length, up to 2**63, such as for hashes of features. pull and push take keys,
    the indices of entries. A key's hash says which rank owns its entry; all own about the same number. `local` is a
    copy of this rank's keys and values. There are axpy, scale, sub, mul, copy(other), fill(0), zip, derive, dot, norm,
    sum, nnz, and touched(), the number of entries of all ranks; no operators. A part that grows by half or more between
    two malt.barrier() may be read by others as it was in between, until the later one.

    `sync`: "asp", or "ssp:S": a step is a push, and a pull at step t waits until every other rank has reached step
    t - S and its pushes up to there have been added. A rank that has nothing to push in a step says so by
    s.push([], []); no rank waits for one that has closed the vector. Derived vectors are "asp".

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs. MemoryError, on all ranks: the
    host, or its /dev/shm, cannot hold the parts. RuntimeError: another thread is in a collective call. Nothing is made.
    """

    def check(world: World) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], Mapping[str, Any]]:
        arguments.choice("kind", kind, _KINDS)
        found = _dtype(dtype)
        shape = _length(n) if kind == "sparse" else _shape(n, found, world.size)
        mode = parse(sync)
        if mode.acknowledges:
            raise ValueError(f'sync of a sharded vector must be "asp" or "ssp:S", got {shown(sync)}')
        return (shape, found), {"shape": list(shape), "dtype": found.str, "kind": kind, "sync": mode.name}

    def make(
        world: World, title: str, checked: tuple[tuple[int, ...], np.dtype[Any]], ranks: tuple[int, ...]
    ) -> ShardedVector | SparseShardedVector:  # fmt: skip
        from vol import HashedLayout, ShardLayout

        layout = HashedLayout if kind == "sparse" else ShardLayout
        return _made(world, title, layout(checked[0], ranks, checked[1]), parse(sync))

    return create("malt.sharded", "sharded", name, check, make)


def reduce_scatter(array: Any, op: str = "mean", name: str | None = None) -> ShardedVector:
    """Return a sharded vector of the shape of `array`: the mean, sum, max or min over all ranks. Collective.

    Each rank combines the rows that it owns, in rank order. `array`, of float32 or float64, of shape (n,) or (n, k),
    the same shape and dtype on all ranks, is unchanged. malt.init().statistics() counts the bytes. `name`: as
    malt.sharded.

    ValueError, MemoryError, on all ranks: as malt.sharded. PeerLost, on all: a rank has failed in the call. Nothing is
    made.
    """

    def check(world: World) -> tuple[Array, Mapping[str, Any]]:
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"array must be a NumPy array, got {type(array).__name__}")
        arguments.choice("op", op, OPERATIONS)
        shape = _shape(array.shape, _dtype(array.dtype), world.size)
        return np.ascontiguousarray(array), {"shape": list(shape), "dtype": array.dtype.str, "op": op}

    def make(world: World, title: str, own: Array, ranks: tuple[int, ...]) -> ShardedVector:
        from vol import ShardedVector, ShardLayout

        made = _made(world, title, ShardLayout(own.shape, ranks, own.dtype))
        assert isinstance(made, ShardedVector)
        try:
            made.take_reduced(world.traffic, own, op)
        except RanksChanged as change:
            made.leave()
            made.free()
            lost = min(set(ranks) - set(change.ranks))
            raise PeerLost(lost, "it failed while its array was reduced") from None
        return made

    return create("malt.reduce_scatter", "sharded", name, check, make)


def _derived(layout: ShardLayout, call: str) -> ShardedVector | SparseShardedVector:
    """A sharded vector of zeros of this layout. Collective."""

    def check(world: World) -> tuple[ShardLayout, Mapping[str, Any]]:
        return layout, {"layout": str(layout), "dtype": layout.dtype.str}

    def make(
        world: World, title: str, layout: ShardLayout, ranks: tuple[int, ...]
    ) -> ShardedVector | SparseShardedVector:  # fmt: skip
        if absent := set(layout.ranks) - set(ranks):
            raise PeerLost(min(absent), f"{call}: its part has failed with it")
        return _made(world, title, layout)

    return create(call, "sharded", None, check, make)


def _made(
    world: World, title: str, layout: ShardLayout, sync: Consistency = ASP
) -> ShardedVector | SparseShardedVector:  # fmt: skip
    from vol import HashedLayout, ShardedVector, SparseShardedVector

    rest = (world.transport, _derived, world.deadline_s, title, lambda: world.closed, sync)
    if isinstance(layout, HashedLayout):
        return world.kind_of(SparseShardedVector)(layout, *rest)
    return world.kind_of(ShardedVector)(layout, *rest)


def _dtype(dtype: Any) -> np.dtype[Any]:
    found: np.dtype[Any]
    try:
        found = np.dtype(object if dtype is None else dtype)  # to NumPy None is float64
    except TypeError:
        found = np.dtype(object)
    if found.name not in _DTYPES or not found.isnative:
        raise TypeError(f"dtype must be {' or '.join(_DTYPES)}, got {shown(dtype)}")
    return found


def _length(n: Any) -> tuple[int, ...]:
    try:
        length = arguments.integer(n)
    except TypeError:
        raise TypeError(f"n of a sparse vector must be a length, got {shown(n)}") from None
    if not 0 <= length <= _LONGEST:
        raise ValueError(f"n of a sparse vector must be a length from 0 to 2**63, got {shown(n)}")
    return (length,)


def _shape(n: Any, dtype: np.dtype[Any], size: int) -> tuple[int, ...]:
    try:
        shape = tuple(map(arguments.integer, n if isinstance(n, (tuple, list)) else (n,)))
    except TypeError:
        raise TypeError(f"n must be a length, or a shape (n, k), got {shown(n)}") from None
    if len(shape) not in (1, 2) or shape[0] < 0 or shape[1:] == (0,) or min(shape) < 0:
        raise ValueError(f"n must be a length of at least 0, or a shape (n, k) with k of at least 1, got {shown(n)}")
    shm_space.check_host(f"n: a part of shape {shape} of {dtype}", prod(shape) * dtype.itemsize // size)
    return shape
