"""`malt.vector`: all ranks check and compare its arguments, then make the vector."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from operator import index
from typing import Any

import numpy as np

from dstorm import Consistency, parse
from dstorm.transports import shm_space
from dstorm.words import shown
from malt.session.vectors.creation import create
from malt.session.vectors.graphs import session_graph
from malt.session.world.world import World
from vol import DenseVector, Graph, Vector, arguments
from vol.update import Array

_KINDS = ("dense", "sparse")
_WIRES = ("float16", "int8")
_Arguments = tuple[Array, Graph, Consistency, dict[str, Any]]


def vector(
    init: Any, kind: str = "dense", graph: Any = "all", sync: str = "asp", depth: int = 2,
    capacity: int | None = None, check_finite: bool = False, name: str | None = None, *,
    wire: str | None = None, top_k: int | None = None, track: bool = True,
) -> Vector:  # fmt: skip
    """Return a vector that all ranks share, each with its own replica. Collective.

    `init`: a length or a shape, for float32 zeros; or an array, which becomes the replica itself, not a copy. It is
    C-contiguous and writable, of float16, 32, 64 or an integer dtype. `graph`: the graph along whose edges updates are
    sent: a name, a malt.Graph, a dict {rank: [peers]} or a networkx DiGraph. `sync`: "asp", "ssp:S", "bsp" or
    "notify-ack". `depth`: the number of messages that a queue holds for each sender before the oldest is overwritten.
    `check_finite`: refuse updates with NaN or infinity. `name`: for error messages, the same on all ranks. The default
    is the number of the vector.

    `kind`: "dense" sends the whole array. "sparse", of shape (n,) or (n, k), sends rows: those named in
    `v.scatter(rows=...)`; by default those that have changed, bit by bit, since the vector was made and have not been
    sent to that peer. After `v.clear()`, or a gather with malt.MEAN, these are the nonzero rows. `capacity`, `top_k`
    and `track` are only for sparse vectors.

    `capacity`: the maximum number of rows per message, all if None. Memory is allocated for this many. It is an error
    to change or name more. With survive=True, rows that a gather changed, and rows pending for a rank that became a
    neighbour when another failed, wait for later scatters if the message is full. `wire`: "float16" sends values of a
    float32 or float64 vector rounded to float16; "int8" as 8-bit integers, with a scale for each row. For a dense
    vector under "asp" and "ssp:S" it rounds messages to other hosts, "int8" with a scale for each 64 elements, and
    nothing within a host. Each message is rounded separately: use it for models, which the next message replaces.

    `top_k`: the array holds increments, for malt.MEAN or malt.SUM. A scatter adds the rows named, by default the
    nonzero ones, to the rows pending for these peers, and sends the `top_k` pending rows with the largest norm. The
    others, and the rounding errors, are kept for later scatters. Scatters of a zeroed array send them, until one
    returns 0.

    `track=False`: changed rows are not detected, which saves a copy of the array and some time. Every scatter must name
    its rows, and rows merged by a gather are not forwarded automatically.

    ValueError, the same on all ranks: an argument is wrong on one of them, or differs. MemoryError, on all ranks: the
    host, or its /dev/shm, cannot hold the vector. RuntimeError: another thread is in a collective call. Nothing is
    made.
    """

    def check(world: World) -> tuple[_Arguments, Mapping[str, Any]]:
        arguments.truth("check_finite", check_finite)
        _check_options(kind, depth)
        array, mesh, consistency = _array(init), session_graph(world, graph), parse(sync)
        rows = _row_options(kind, array, capacity, wire, top_k, track, consistency)
        common = {"kind": kind, "depth": index(depth), **rows}
        return (array, mesh, consistency, rows), {**_description(array, mesh, consistency), **common}

    def make(world: World, title: str, checked: _Arguments, _: tuple[int, ...]) -> Vector:
        array, mesh, consistency, rows = checked
        plain: type[Vector] = DenseVector
        if kind == "sparse":
            from vol import SparseVector

            plain = SparseVector
        return world.kind_of(plain)(
            array, world.transport, mesh, consistency, **rows,
            depth=depth, deadline_s=world.deadline_s, check_finite=check_finite, name=title,
        )  # fmt: skip

    return create("malt.vector", "vector", name, check, make)


def _description(array: Array, mesh: Graph, consistency: Consistency) -> dict[str, Any]:
    """Return what must be the same on all ranks."""
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.str,
        "graph": mesh.fingerprint,
        "sync": consistency.name,
    }


def _array(init: Any) -> Array:
    """The array of the replica: `init`, checked, or zeros of that shape."""
    if isinstance(init, np.ndarray):
        return checked_array(init)
    try:
        shape = tuple(map(arguments.integer, init if isinstance(init, (tuple, list)) else (init,)))
    except TypeError:
        raise TypeError(f"init must be a length, a shape or a NumPy array, got {shown(init)}") from None
    if any(length < 0 for length in shape):
        raise ValueError(f"init must be a length or a shape of numbers of at least 0, got {shown(init)}")
    shm_space.check_host(f"init: an array of shape {shape} of float32", 4 * prod(shape))
    try:
        return np.zeros(shape, np.float32)
    except ValueError as error:  # more dimensions, or longer ones, than arrays can have
        raise ValueError(f"init: shape {shape}: {error}") from None


def checked_array(array: Array) -> Array:
    """`array`. Local. TypeError, ValueError: it cannot be a replica."""
    if isinstance(array, (np.matrix, np.ma.MaskedArray)):  # always two-dimensional, or with a mask
        raise TypeError(f"init must be a plain array, got a {type(array).__name__}: pass np.asarray(it), a view")
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8 or not array.dtype.isnative:
        raise TypeError(f"init must be of float16, 32, 64 or an integer dtype in native byte order, got {array.dtype}")
    if not array.flags.c_contiguous:
        raise ValueError("init must be C-contiguous: pass np.ascontiguousarray(it), which is a copy")
    if not array.flags.writeable:
        raise ValueError("init must be writable: pass a copy")
    return array


def _check_options(kind: str, depth: int) -> None:
    arguments.choice("kind", kind, _KINDS)
    arguments.whole("depth", depth, 1, "messages")


def _row_options(
    kind: str, array: Array, capacity: int | None, wire: str | None, top_k: int | None, track: bool,
    consistency: Consistency,
) -> dict[str, Any]:  # fmt: skip
    """The options of a sparse vector, checked; empty for a dense one."""
    if not isinstance(track, (bool, np.bool_)):
        raise ValueError(f"track must be True or False, got {shown(track)}")
    if kind == "dense":
        if capacity is not None:
            raise ValueError("capacity is for sparse vectors: a dense one sends the whole array")
        if top_k is not None:
            raise ValueError('top_k is for sparse vectors: kind="sparse"')
        if not track:
            raise ValueError('track is for sparse vectors: kind="sparse"')
        return {"wire": _whole_wire(wire, array, consistency)}
    if array.ndim not in (1, 2) or array.shape[1:] == (0,):
        raise ValueError(f"a sparse vector has shape (n,) or (n, k) with k of at least 1, got {array.shape}")
    if capacity is not None:
        arguments.whole("capacity", capacity, 1, "rows")
    if wire is not None:
        check_wire(wire, array)
    if top_k is not None:
        _check_top_k(top_k, capacity, array)
    return {
        "capacity": None if capacity is None else index(capacity),
        "wire": wire,
        "top_k": None if top_k is None else index(top_k),
        "track": bool(track),
    }


def _whole_wire(wire: str | None, array: Array, consistency: Consistency) -> str | None:
    """The wire of a dense vector. ValueError."""
    if wire is None:
        return None
    check_wire(wire, array)
    if consistency.acknowledges:
        raise ValueError(f'wire of a dense vector needs sync="asp" or "ssp:S", got {consistency.name!r}')
    return wire


def check_wire(wire: Any, array: Array) -> None:
    """Check that values of `array` can be sent as `wire` says. ValueError: they cannot."""
    arguments.choice("wire", wire, _WIRES)
    if array.dtype.kind != "f" or array.dtype.itemsize <= np.dtype(wire).itemsize:
        raise ValueError(f"wire={wire!r} is for vectors of float32 and float64, this one is of {array.dtype}")


def _check_top_k(top_k: Any, capacity: int | None, array: Array) -> None:
    arguments.whole("top_k", top_k, 1, "rows")
    if array.dtype.kind != "f":
        raise ValueError(f"top_k is for floating-point vectors, this one is of {array.dtype}")
    if capacity is not None and capacity < top_k:
        raise ValueError(f"a slot of capacity={capacity} rows cannot hold top_k={top_k}")
